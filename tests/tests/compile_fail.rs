//! Every rule of the macro, broken once: the error stands at the token that breaks it and says what would be right.
//!
//! `TRYBUILD=overwrite cargo test -p entwine-tests --test compile_fail` accepts new messages.

#[test]
fn broken_rules_are_compile_errors() {
    trybuild::TestCases::new().compile_fail("compile-fail/*/*.rs");
}
