//! The entries of PTX text. A crate's kernels are in one text, and the driver compiles all that it is given: a program that
//! loads one of ten kernels should not wait for the others.

/// What begins an entry, at the beginning of a line, as the compiler writes it.
const ENTRY: &str = ".visible .entry ";

/// The text with these entries alone, and with all that is not in an entry.
pub(super) fn only(ptx: &str, wanted: &[&str]) -> String {
    let mut text = String::with_capacity(ptx.len() / 4);
    let mut left_out = false;
    for line in ptx.split_inclusive('\n') {
        if let Some(entry) = line.strip_prefix(ENTRY) {
            let name = entry.split(|c: char| c == '(' || c.is_whitespace()).next().unwrap_or_default();
            left_out = !wanted.contains(&name);
        }
        if !left_out {
            text.push_str(line);
        }
        // The brace that closes an entry is the only one at the beginning of a line.
        left_out &= line.trim_end() != "}";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
.version 8.6
.extern .shared .b8 shared[];
.func report
(
)
{
\tret;
}
.visible .entry one(
\t.param .u64 p
)
.maxntid 384
{
\t{ // a block
\t}
\tret;
}
\t// between

.visible .entry one_and_more
()
{
\tret;
}
.visible .entry two()
{
\tret;
}
";

    #[test]
    fn others_are_left_out() {
        let text = only(PTX, &["one_and_more"]);
        assert!(text.contains("report") && text.contains("shared") && text.contains("between"), "{text}");
        assert_eq!(text.matches(ENTRY).count(), 1);
        assert!(text.contains("one_and_more\n()\n{\n\tret;\n}\n") && !text.contains("maxntid"), "{text}");
    }

    #[test]
    fn all_of_them_are_the_text() {
        assert_eq!(only(PTX, &["one", "one_and_more", "two"]), PTX);
    }
}
