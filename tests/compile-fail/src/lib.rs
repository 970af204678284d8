//! Every rule of the macro, broken once: the error stands at the token that breaks it and says what would be right.
//!
//! A crate of its own, so that no kernels have to be compiled before a case is. `TRYBUILD=overwrite cargo test -p
//! entwine-compile-fail` accepts new messages.

#[cfg(test)]
mod tests {
    #[test]
    fn broken_rules_are_compile_errors() {
        trybuild::TestCases::new().compile_fail("cases/*/*.rs");
    }
}
