//! What a tile function's body does with some of its parameters, in which order and under which conditions, read off its
//! syntax.
//!
//! Only calls that start at a parameter's name are understood (`partial.to(owner).slot([…]).store(tile)`). What else is
//! done with the name may be anything.

use proc_macro2::Ident;
use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprMethodCall};

use crate::tokens::mentions;

/// The uses of some parameters.
pub struct Trace<'a> {
    /// In the order in which they are evaluated.
    pub uses: Vec<Use<'a>>,
    /// Where the body may be left, or a loop cut short: the number of uses before each such place.
    exits: Vec<usize>,
}

/// `name.first(…).second(…)`, or a name by itself.
pub struct Use<'a> {
    pub name: &'a Ident,
    /// The calls that start at the name; none, where it is used in any other way.
    pub calls: Vec<&'a ExprMethodCall>,
    /// The method that it is an argument of, by itself.
    pub given_to: Option<&'a Ident>,
    /// What the calls result in is used where it is written: stored, multiplied, added or zipped.
    pub consumed: bool,
    /// The token to blame: the last method, or the name.
    pub at: &'a Ident,
    /// Its place among all.
    index: usize,
    scopes: Vec<Scope>,
}

/// Code that isn't evaluated just once.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    /// An arm of a branch, of which one at most is.
    Arm { branch: usize, arm: usize },
    /// A loop's body.
    Loop(usize),
    /// A closure's, at any time after its place.
    Closure(usize),
}

impl<'a> Trace<'a> {
    /// The uses of the parameters `names` in `body`; `None` if one of the names is given to something else too.
    pub fn of(body: &'a Block, names: &[&'a Ident]) -> Option<Self> {
        let trace = Trace { uses: Vec::new(), exits: Vec::new() };
        let mut finder = Finder { names, trace, scopes: Vec::new(), count: 0, ambiguous: false };
        finder.visit_block(body);
        (!finder.ambiguous).then_some(finder.trace)
    }

    /// Whether `second` comes after `first` whenever `first` is evaluated.
    pub fn surely_followed(&self, first: &Use, second: &Use) -> bool {
        let leaves = self.exits.iter().any(|exit| (first.index + 1..=second.index).contains(exit));
        first.index < second.index && first.scopes.starts_with(&second.scopes) && !leaves
    }
}

impl<'a> Use<'a> {
    /// The call of one of these methods.
    pub fn call(&self, methods: &[&str]) -> Option<&'a ExprMethodCall> {
        self.calls.iter().copied().find(|call| methods.iter().any(|method| call.method == method))
    }

    /// The last of its calls is one of these methods.
    pub fn ends_in(&self, methods: &[&str]) -> bool {
        self.calls.last().is_some_and(|call| methods.iter().any(|method| call.method == method))
    }

    /// Every tile comes here.
    pub fn always(&self) -> bool {
        self.scopes.is_empty()
    }

    /// It may be evaluated several times.
    pub fn repeated(&self) -> bool {
        self.scopes.iter().any(|scope| matches!(scope, Scope::Loop(_)))
    }

    /// Whether it has come before whenever `second` is evaluated.
    pub fn surely_precedes(&self, second: &Use) -> bool {
        self.index < second.index && second.scopes.starts_with(&self.scopes)
    }

    /// Whether it may come before `second`.
    pub fn may_precede(&self, second: &Use) -> bool {
        let in_closure = |found: &Use| found.scopes.iter().any(|scope| matches!(scope, Scope::Closure(_)));
        let shared = self.scopes.iter().zip(&second.scopes).take_while(|(one, other)| one == other);
        let repeated = shared.clone().any(|(scope, _)| !matches!(scope, Scope::Arm { .. }));
        let apart = match (self.scopes.get(shared.clone().count()), second.scopes.get(shared.count())) {
            (Some(Scope::Arm { branch: one, .. }), Some(Scope::Arm { branch: other, .. })) => one == other,
            _ => false,
        };
        repeated || in_closure(self) || in_closure(second) || self.index < second.index && !apart
    }
}

struct Finder<'a, 'n> {
    names: &'n [&'a Ident],
    trace: Trace<'a>,
    /// What is around the current expression.
    scopes: Vec<Scope>,
    /// Branches, loops and closures so far.
    count: usize,
    /// A name is bound again somewhere.
    ambiguous: bool,
}

impl<'a> Finder<'a, '_> {
    fn number(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    fn within(&mut self, scope: Scope, visit: impl FnOnce(&mut Self)) {
        self.scopes.push(scope);
        visit(self);
        self.scopes.pop();
    }

    fn repeated(&mut self, visit: impl FnOnce(&mut Self)) {
        let number = self.number();
        self.within(Scope::Loop(number), visit);
    }

    /// Something that is not always evaluated.
    fn sometimes(&mut self, visit: impl FnOnce(&mut Self)) {
        let branch = self.number();
        self.within(Scope::Arm { branch, arm: 0 }, visit);
    }

    fn is_traced(&self, name: &Ident) -> bool {
        self.names.contains(&name)
    }

    fn push(&mut self, name: &'a Ident, calls: Vec<&'a ExprMethodCall>, given_to: Option<&'a Ident>) {
        let at = calls.last().map_or(name, |call| &call.method);
        let (index, scopes) = (self.trace.uses.len(), self.scopes.clone());
        self.trace.uses.push(Use { name, calls, given_to, consumed: false, at, index, scopes });
    }

    /// An argument of a method.
    fn argument(&mut self, method: &'a Ident, argument: &'a Expr) {
        match bare(argument) {
            Expr::Path(path) if path.path.get_ident().is_some_and(|name| self.is_traced(name)) => {
                self.push(path.path.get_ident().expect("it is one"), Vec::new(), Some(method));
            }
            _ if method == "store" || method == "zip_columns" => self.consumed(argument),
            _ => self.visit_expr(argument),
        }
    }

    /// Something that is used where it is written.
    fn consumed(&mut self, expr: &'a Expr) {
        self.visit_expr(expr);
        if let Expr::MethodCall(call) = bare(expr)
            && self.chain(call).is_some()
            && let Some(last) = self.trace.uses.last_mut()
        {
            last.consumed = true;
        }
    }

    /// The name and the calls of `name.first().second()…`, in that order, if `call` is the last of such a chain.
    fn chain(&self, call: &'a ExprMethodCall) -> Option<(&'a Ident, Vec<&'a ExprMethodCall>)> {
        let mut calls = vec![call];
        let name = loop {
            match bare(&calls.last().expect("it starts with one").receiver) {
                Expr::MethodCall(earlier) => calls.push(earlier),
                Expr::Path(path) => break path.path.get_ident().filter(|name| self.is_traced(name))?,
                _ => return None,
            }
        };
        calls.reverse();
        Some((name, calls))
    }
}

/// The expression without parentheses, whether it is borrowed or not.
fn bare(mut expr: &Expr) -> &Expr {
    loop {
        expr = match expr {
            Expr::Paren(inner) => &inner.expr,
            Expr::Reference(inner) => &inner.expr,
            _ => return expr,
        };
    }
}

impl<'a> Visit<'a> for Finder<'a, '_> {
    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        let Some((name, calls)) = self.chain(call) else {
            self.visit_expr(&call.receiver);
            return call.args.iter().for_each(|argument| self.argument(&call.method, argument));
        };
        for call in &calls {
            call.args.iter().for_each(|argument| self.argument(&call.method, argument));
        }
        self.push(name, calls, None);
    }

    fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
        self.visit_expr(&call.func);
        let multiplies = match &*call.func {
            Expr::Path(function) => function.path.segments.last().is_some_and(|last| last.ident == "matmul"),
            _ => false,
        };
        for argument in &call.args {
            if multiplies { self.consumed(argument) } else { self.visit_expr(argument) }
        }
    }

    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        self.visit_expr(&binary.left);
        match binary.op {
            syn::BinOp::And(_) | syn::BinOp::Or(_) => self.sometimes(|finder| finder.visit_expr(&binary.right)),
            syn::BinOp::AddAssign(_) => self.consumed(&binary.right),
            _ => self.visit_expr(&binary.right),
        }
    }

    fn visit_expr_if(&mut self, choice: &'a syn::ExprIf) {
        self.visit_expr(&choice.cond);
        let branch = self.number();
        self.within(Scope::Arm { branch, arm: 0 }, |finder| finder.visit_block(&choice.then_branch));
        if let Some((_, other)) = &choice.else_branch {
            self.within(Scope::Arm { branch, arm: 1 }, |finder| finder.visit_expr(other));
        }
    }

    fn visit_expr_match(&mut self, choice: &'a syn::ExprMatch) {
        self.visit_expr(&choice.expr);
        let branch = self.number();
        for (arm, taken) in choice.arms.iter().enumerate() {
            self.within(Scope::Arm { branch, arm }, |finder| visit::visit_arm(finder, taken));
        }
    }

    fn visit_local_init(&mut self, init: &'a syn::LocalInit) {
        self.visit_expr(&init.expr);
        if let Some((_, other)) = &init.diverge {
            self.sometimes(|finder| finder.visit_expr(other));
        }
    }

    fn visit_expr_for_loop(&mut self, repeated: &'a syn::ExprForLoop) {
        self.visit_expr(&repeated.expr);
        self.visit_pat(&repeated.pat);
        self.repeated(|finder| finder.visit_block(&repeated.body));
    }

    fn visit_expr_while(&mut self, repeated: &'a syn::ExprWhile) {
        self.repeated(|finder| visit::visit_expr_while(finder, repeated));
    }

    fn visit_expr_loop(&mut self, repeated: &'a syn::ExprLoop) {
        self.repeated(|finder| visit::visit_expr_loop(finder, repeated));
    }

    fn visit_expr_closure(&mut self, closure: &'a syn::ExprClosure) {
        let number = self.number();
        self.within(Scope::Closure(number), |finder| visit::visit_expr_closure(finder, closure));
    }

    fn visit_expr_return(&mut self, left: &'a syn::ExprReturn) {
        visit::visit_expr_return(self, left);
        self.trace.exits.push(self.trace.uses.len());
    }

    fn visit_expr_break(&mut self, left: &'a syn::ExprBreak) {
        visit::visit_expr_break(self, left);
        self.trace.exits.push(self.trace.uses.len());
    }

    fn visit_expr_continue(&mut self, _: &'a syn::ExprContinue) {
        self.trace.exits.push(self.trace.uses.len());
    }

    fn visit_expr_try(&mut self, left: &'a syn::ExprTry) {
        visit::visit_expr_try(self, left);
        self.trace.exits.push(self.trace.uses.len());
    }

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        if let Some(name) = path.path.get_ident().filter(|name| self.is_traced(name)) {
            self.push(name, Vec::new(), None);
        }
    }

    fn visit_pat_ident(&mut self, pattern: &'a syn::PatIdent) {
        self.ambiguous |= self.is_traced(&pattern.ident);
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        for name in self.names.iter().filter(|name| mentions(call.tokens.clone(), &|found| found == **name)) {
            self.push(name, Vec::new(), None);
        }
        self.trace.exits.push(self.trace.uses.len());
    }
}
