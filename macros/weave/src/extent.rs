//! Extents: sizes in terms of the launch, as written in `slots`, `grid`, `shape` and `columns`.

use std::fmt::{self, Display, Formatter};

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, quote};
use syn::{BinOp, Expr, ExprBinary, Lit, Stmt};

/// A size. `/` rounds up.
#[derive(Clone, PartialEq)]
pub enum Extent {
    /// A named dimension.
    Dim(Ident),
    /// The number of ranks.
    World(Ident),
    /// A number.
    Literal(u32),
    /// `BM`
    TileRows(Ident),
    /// `BN`
    TileColumns(Ident),
    /// A sum.
    Add(Box<Extent>, Box<Extent>),
    /// A difference.
    Sub(Box<Extent>, Box<Extent>),
    /// A product.
    Mul(Box<Extent>, Box<Extent>),
    /// A quotient.
    DivCeil(Box<Extent>, Box<Extent>),
}

/// Names that a dimension can't have, as the woven code uses them beside the dimensions, or as Rust does.
const TAKEN: [&str; 6] = ["at", "crate", "ctas", "params", "role", "self"];

impl Extent {
    pub fn parse(expr: &Expr) -> syn::Result<Self> {
        match expr {
            Expr::Path(path) => match path.path.get_ident() {
                Some(name) => Extent::named(name),
                None => Err(syn::Error::new_spanned(expr, EXPECTED)),
            },
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(number) => Ok(Extent::Literal(number.base10_parse()?)),
                _ => Err(syn::Error::new_spanned(expr, EXPECTED)),
            },
            Expr::Binary(binary) => Extent::operation(binary),
            Expr::Paren(inner) => Extent::parse(&inner.expr),
            Expr::Group(inner) => Extent::parse(&inner.expr),
            Expr::Block(inner) => match inner.block.stmts.as_slice() {
                [Stmt::Expr(value, None)] => Extent::parse(value),
                _ => Err(syn::Error::new_spanned(expr, EXPECTED)),
            },
            _ => Err(syn::Error::new_spanned(expr, EXPECTED)),
        }
    }

    fn named(name: &Ident) -> syn::Result<Self> {
        let text = name.to_string();
        match text.as_str() {
            "world" => Ok(Extent::World(name.clone())),
            "BM" => Ok(Extent::TileRows(name.clone())),
            "BN" => Ok(Extent::TileColumns(name.clone())),
            text if TAKEN.contains(&text) => {
                Err(syn::Error::new(name.span(), format!("`{text}` is taken: give the dimension another name")))
            }
            text if text.chars().any(char::is_uppercase) => Err(syn::Error::new(
                name.span(),
                format!(
                    "`{text}` is no size that is known here: dimensions have lower-case names, and a tile is `BM` by \
                     `BN`"
                ),
            )),
            _ => Ok(Extent::Dim(name.clone())),
        }
    }

    fn operation(binary: &ExprBinary) -> syn::Result<Self> {
        let sides = || Ok((Box::new(Extent::parse(&binary.left)?), Box::new(Extent::parse(&binary.right)?)));
        match binary.op {
            BinOp::Add(_) => sides().map(|(left, right)| Extent::Add(left, right)),
            BinOp::Sub(_) => sides().map(|(left, right)| Extent::Sub(left, right)),
            BinOp::Mul(_) => sides().map(|(left, right)| Extent::Mul(left, right)),
            BinOp::Div(_) => match sides()? {
                (_, right) if matches!(*right, Extent::Literal(0)) => {
                    Err(syn::Error::new_spanned(&binary.right, "an extent can't be divided by 0"))
                }
                (left, right) => Ok(Extent::DivCeil(left, right)),
            },
            operator => {
                Err(syn::Error::new_spanned(operator, "extents are put together with `+`, `-`, `*` and `/` alone"))
            }
        }
    }

    /// Calls `f` with every dimension's name.
    pub fn for_each_dim<'a>(&'a self, f: &mut impl FnMut(&'a Ident)) {
        match self {
            Extent::Dim(name) => f(name),
            Extent::World(_) | Extent::Literal(_) | Extent::TileRows(_) | Extent::TileColumns(_) => {}
            Extent::Add(left, right)
            | Extent::Sub(left, right)
            | Extent::Mul(left, right)
            | Extent::DivCeil(left, right) => {
                left.for_each_dim(f);
                right.for_each_dim(f);
            }
        }
    }

    /// The dimension is part of it.
    pub fn mentions(&self, dim: &Ident) -> bool {
        let mut found = false;
        self.for_each_dim(&mut |name| found |= name == dim);
        found
    }

    /// The number of ranks is part of it.
    pub fn mentions_world(&self) -> bool {
        match self {
            Extent::World(_) => true,
            Extent::Dim(_) | Extent::Literal(_) | Extent::TileRows(_) | Extent::TileColumns(_) => false,
            Extent::Add(left, right)
            | Extent::Sub(left, right)
            | Extent::Mul(left, right)
            | Extent::DivCeil(left, right) => left.mentions_world() || right.mentions_world(),
        }
    }

    /// The dimension that takes its size from a matrix which has this extent: `x` of `x` and of `x / world`.
    pub fn binds(&self) -> Option<&Ident> {
        match self {
            Extent::Dim(name) => Some(name),
            Extent::DivCeil(whole, parts) if matches!(**parts, Extent::World(_)) => match &**whole {
                Extent::Dim(name) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// The number where tiles are `tile`; `None` if it depends on the launch.
    pub fn constant(&self, tile: (u32, u32)) -> Option<u32> {
        match self {
            Extent::Dim(_) | Extent::World(_) => None,
            Extent::Literal(value) => Some(*value),
            Extent::TileRows(_) => Some(tile.0),
            Extent::TileColumns(_) => Some(tile.1),
            Extent::Add(left, right) => left.constant(tile)?.checked_add(right.constant(tile)?),
            Extent::Sub(left, right) => left.constant(tile)?.checked_sub(right.constant(tile)?),
            Extent::Mul(left, right) => left.constant(tile)?.checked_mul(right.constant(tile)?),
            Extent::DivCeil(left, right) => match right.constant(tile)? {
                0 => None,
                divisor => Some(left.constant(tile)?.div_ceil(divisor)),
            },
        }
    }

    /// A `u32` in terms of `world` and the dimensions, each a variable.
    pub fn in_kernel(&self) -> TokenStream {
        match self {
            Extent::Dim(name) | Extent::World(name) => quote!(#name),
            Extent::Literal(value) => Literal::u32_unsuffixed(*value).into_token_stream(),
            Extent::TileRows(name) | Extent::TileColumns(name) => quote!(#name as u32),
            Extent::Add(left, right) => {
                let (left, right) = (left.in_kernel(), right.in_kernel());
                quote!((#left + #right))
            }
            Extent::Sub(left, right) => {
                let (left, right) = (left.in_kernel(), right.in_kernel());
                quote!((#left - #right))
            }
            Extent::Mul(left, right) => {
                let (left, right) = (left.in_kernel(), right.in_kernel());
                quote!((#left * #right))
            }
            Extent::DivCeil(left, right) => {
                let (left, right) = (left.in_kernel(), right.in_kernel());
                quote!(::entwine::device::tiles(#left, #right))
            }
        }
    }

    /// An `Extent` of the specification; `dims` are the kernel's dimensions.
    pub fn in_spec(&self, dims: &[Ident]) -> TokenStream {
        let operation = |operation: TokenStream, left: &Extent, right: &Extent| {
            let (left, right) = (left.in_spec(dims), right.in_spec(dims));
            quote!(Extent::#operation(&#left, &#right))
        };
        match self {
            Extent::Dim(name) => {
                let index = dims.iter().position(|dim| dim == name).map(Literal::usize_unsuffixed);
                quote!(Extent::Dim(#index))
            }
            Extent::World(_) => quote!(Extent::World),
            Extent::Literal(value) => {
                let value = Literal::u32_unsuffixed(*value);
                quote!(Extent::Literal(#value))
            }
            Extent::TileRows(_) => quote!(Extent::TileRows),
            Extent::TileColumns(_) => quote!(Extent::TileColumns),
            Extent::Add(left, right) => operation(quote!(Add), left, right),
            Extent::Sub(left, right) => operation(quote!(Sub), left, right),
            Extent::Mul(left, right) => operation(quote!(Mul), left, right),
            Extent::DivCeil(left, right) => operation(quote!(DivCeil), left, right),
        }
    }
}

const EXPECTED: &str = "expected an extent: dimension names such as `m`, `world`, `BM`, `BN` and numbers, put together \
                        with `+`, `-`, `*` and `/`";

impl Display for Extent {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        match self {
            Extent::Dim(name) | Extent::World(name) | Extent::TileRows(name) | Extent::TileColumns(name) => {
                write!(out, "{name}")
            }
            Extent::Literal(value) => write!(out, "{value}"),
            Extent::Add(left, right) => write!(out, "{left} + {right}"),
            Extent::Sub(left, right) => write!(out, "{left} - {}", Left(right)),
            Extent::Mul(left, right) => write!(out, "{} * {}", Left(left), Right(right)),
            Extent::DivCeil(left, right) => write!(out, "{} / {}", Left(left), Right(right)),
        }
    }
}

/// What stands before `*` or `/`, or after `-`.
struct Left<'a>(&'a Extent);

impl Display for Left<'_> {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        match self.0 {
            sum @ (Extent::Add(..) | Extent::Sub(..)) => write!(out, "({sum})"),
            other => write!(out, "{other}"),
        }
    }
}

/// What stands after `*` or `/`.
struct Right<'a>(&'a Extent);

impl Display for Right<'_> {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        match self.0 {
            compound @ (Extent::Add(..) | Extent::Sub(..) | Extent::Mul(..) | Extent::DivCeil(..)) => {
                write!(out, "({compound})")
            }
            other => write!(out, "{other}"),
        }
    }
}

/// "`[m / BM, n / BN]`", without the ticks.
pub fn axes(extents: &[Extent]) -> String {
    format!("[{}]", extents.iter().map(Extent::to_string).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(expr: Expr) -> Extent {
        Extent::parse(&expr).unwrap()
    }

    #[test]
    fn what_is_printed_means_the_same() {
        for text in [
            "m / world / BM",
            "m / (world * BM)",
            "(m + 1) * (n + k) / 2",
            "m - (n - k) - 1",
            "(world - 1) * m",
            "m + n * k",
            "m / (n / k)",
            "m * (n / k)",
        ] {
            let parsed = extent(syn::parse_str(text).unwrap());
            assert_eq!(parsed.to_string(), text);
            assert!(extent(syn::parse_str(&parsed.to_string()).unwrap()) == parsed);
        }
    }

    #[test]
    fn constants_depend_on_the_tile_alone() {
        let tile = (128, 256);
        assert_eq!(extent(syn::parse_quote!({ BN / 2 })).constant(tile), Some(128));
        assert_eq!(extent(syn::parse_quote!((BM + 1) / 2)).constant(tile), Some(65), "rounded up");
        assert_eq!(extent(syn::parse_quote!(BM * world)).constant(tile), None);
        assert_eq!(extent(syn::parse_quote!(BM * 4294967295)).constant(tile), None, "too large for 32 bits");
        assert_eq!(extent(syn::parse_quote!(BN / (0 * 1))).constant(tile), None, "divided by 0");
        assert_eq!(extent(syn::parse_quote!(64 - BM)).constant(tile), None, "less than 0");
    }

    #[test]
    fn a_dimension_is_bound_where_it_stands_alone_or_is_shared_out() {
        let binds = |text| extent(syn::parse_str(text).unwrap()).binds().map(Ident::to_string);
        assert_eq!(binds("m").as_deref(), Some("m"));
        assert_eq!(binds("m / world").as_deref(), Some("m"));
        assert_eq!(binds("m / 2"), None);
        assert_eq!(binds("m * world"), None);
    }
}
