//! Lists.

use super::{Kind, KindError};
use crate::tree::{Tree, Value};

/// A list of values of a kind. One value that stands alone is a list of one.
pub(crate) struct List<K>(K);

/// A list.
pub(crate) fn list<K: Kind>(kind: K) -> List<K> {
    List(kind)
}

impl<K: Kind> Kind for List<K> {
    type Value = Vec<K::Value>;

    fn read(&self, value: &Tree) -> Result<Self::Value, KindError> {
        let Value::List(elements) = &value.value else { return Ok(vec![self.0.read(value)?]) };
        let (mut values, mut mistakes) = (Vec::with_capacity(elements.len()), Vec::new());
        for element in elements {
            match self.0.read(element) {
                Ok(value) => values.push(value),
                Err(wrong) => {
                    mistakes.push(KindError { place: Some(wrong.place.unwrap_or(element.place)), ..wrong })
                }
            }
        }
        let mut mistakes = mistakes.into_iter();
        match mistakes.next() {
            None => Ok(values),
            Some(first) => Err(KindError { others: mistakes.collect(), ..first }),
        }
    }

    fn show(&self, value: &Self::Value) -> String {
        let elements: Vec<_> = value.iter().map(|element| self.0.show(element)).collect();
        format!("[{}]", elements.join(", "))
    }

    fn form(&self) -> String {
        format!("a list; each element is {}", self.0.form())
    }

    fn range(&self) -> String {
        self.0.range()
    }

    fn example(&self) -> String {
        format!("[{}]", self.0.example())
    }
}
