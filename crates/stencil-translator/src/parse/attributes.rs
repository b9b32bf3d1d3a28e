//! Attributes. One that the translator does not know may change what it reads, or leave it out.

use syn::Attribute;
use syn::spanned::Spanned;
use syn::visit::Visit;

use super::Parser;

/// Attributes that do not change what code means.
const HARMLESS: [&str; 10] = [
    "allow",
    "cold",
    "deny",
    "deprecated",
    "doc",
    "expect",
    "forbid",
    "inline",
    "must_use",
    "warn",
];

impl Parser<'_> {
    /// Refuses an attribute that may change what code means.
    pub(super) fn attribute(&mut self, attribute: &Attribute) {
        let path = attribute.path();
        let message = match path.get_ident().map(ToString::to_string).as_deref() {
            Some(name) if HARMLESS.contains(&name) => return,
            None if ["clippy", "diagnostic", "rustfmt"]
                .iter()
                .any(|tool| path.segments.first().is_some_and(|first| first.ident == tool)) =>
            {
                return;
            }
            Some("cfg" | "cfg_attr") => {
                "conditional compilation is not seen by the translator: put `cfg` on the module"
            }
            _ => "the translator does not see what this attribute does: remove it",
        };
        self.error(attribute.span(), message);
    }
}

impl Visit<'_> for Parser<'_> {
    fn visit_attribute(&mut self, attribute: &Attribute) {
        self.attribute(attribute);
    }
}
