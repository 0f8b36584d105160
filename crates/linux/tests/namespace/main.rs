//! On the real kernel, in namespaces of our own. Needs root.
