#!/usr/bin/python3
"""Compares lines of JSON with a schema: validate.py SCHEMA < LINES. It prints each fault, and ends with 1 if there is one."""
import json
import sys

import jsonschema

with open(sys.argv[1], encoding="utf-8") as file:
    schema = json.load(file)
kind = jsonschema.validators.validator_for(schema)
kind.check_schema(schema)
validator = kind(schema)
faults = 0
for number, line in enumerate(sys.stdin, 1):
    for fault in validator.iter_errors(json.loads(line)):
        place = ".".join(str(part) for part in fault.absolute_path)
        print(f"line {number}: {place}: {fault.message}")
        faults += 1
sys.exit(faults > 0)
