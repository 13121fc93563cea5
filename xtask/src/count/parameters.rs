//! Parameters that say nothing at the call: tuples without names, and booleans.

use syn::visit::{self, Visit};
use syn::{FnArg, Pat, Signature, Type};

/// Parameters by line, each with the name of its function.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) tuples: Vec<(usize, String)>,
    pub(super) booleans: Vec<(usize, String)>,
}

/// Finds the parameters of all functions and methods of a file; closures are left out.
pub(super) fn of(file: &syn::File) -> Parameters {
    let mut found = Parameters::default();
    found.visit_file(file);
    found
}

impl<'ast> Visit<'ast> for Parameters {
    fn visit_signature(&mut self, signature: &'ast Signature) {
        for input in &signature.inputs {
            let FnArg::Typed(parameter) = input else { continue };
            let line = parameter.colon_token.spans[0].start().line;
            if matches!(*parameter.pat, Pat::Tuple(_)) {
                self.tuples.push((line, format!("tuple parameter of {}", signature.ident)));
            }
            if matches!(&*parameter.ty, Type::Path(of) if of.path.is_ident("bool")) {
                let name = match &*parameter.pat {
                    Pat::Ident(name) => name.ident.to_string(),
                    _ => "_".to_owned(),
                };
                let what = format!("boolean parameter {name} of {}", signature.ident);
                self.booleans.push((line, what));
            }
        }
        visit::visit_signature(self, signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax;

    fn found(text: &str) -> Parameters {
        of(&syntax::parse(text).unwrap())
    }

    #[test]
    fn tuples_are_found_in_functions_methods_and_traits() {
        let text = "fn a((x, y): (&A, B)) {}\nimpl T { fn b(&self, (x, y): (u8, u8)) {} }\n\
                    trait U {\n    fn c(self, (x, _): (u8, u8)) { fn d((z,): (u8,)) {} }\n}\n";
        let lines: Vec<usize> = found(text).tuples.into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 4, 4]);
    }

    #[test]
    fn booleans_are_found_by_name() {
        let found = found("fn a(is_x: bool, n: u8, _: bool) {}\n");
        let expected = ["boolean parameter is_x of a", "boolean parameter _ of a"];
        assert_eq!(found.booleans.into_iter().map(|(_, what)| what).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn other_parameters_closures_results_and_tests_do_not_count() {
        let text = "fn a(p: (u8, u8), b: &bool, f: fn(bool) -> bool, [x, y]: [u8; 2]) -> bool {\n\
                    let g = |(x, y): (u8, u8), z: bool| z; g((1, 2), true) }\n\
                    #[cfg(test)]\nmod tests { fn a((x, y): (u8, u8), z: bool) {} }\n";
        assert_eq!(found(text), Parameters::default());
    }
}
