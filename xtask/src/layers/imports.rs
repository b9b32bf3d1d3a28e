//! Which file of a crate imports from which.
//!
//! An import is a `use`, or a path in code, that leads to an item of another file. It counts for the file that defines
//! the item, even if the path goes through a re-export. A `pub use` alone is no import. Code of tests does not count,
//! nor does code inside macros, except for paths that start with `crate`, `self` or `super`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

/// An index into the modules of a crate.
type ModuleId = usize;
/// The segments of a path.
type Segments = Vec<String>;

/// The files of a crate, and their imports.
#[derive(Debug)]
pub(super) struct Imports {
    /// The files, by their paths from the folder of the root.
    pub(super) files: Vec<String>,
    /// Pairs of indices: the first file imports from the second.
    pub(super) edges: BTreeSet<(usize, usize)>,
}

#[derive(Debug, Default)]
struct Module {
    file: usize,
    parent: Option<ModuleId>,
    children: BTreeMap<String, ModuleId>,
    /// The items that it defines, and their files: exported macros are items of the root.
    items: BTreeMap<String, usize>,
    uses: Vec<Use>,
    /// The paths in its code.
    paths: BTreeSet<Segments>,
}

/// One name that a `use` brings into scope; `*` for all names.
#[derive(Debug)]
struct Use {
    name: String,
    path: Segments,
    is_reexport: bool,
}

/// The end of a path.
#[derive(Clone, Copy)]
enum Found {
    Module(ModuleId),
    /// An item, by its file.
    Item(usize),
}

/// Reads all files of the crate with this root, such as `src/lib.rs`.
pub(super) fn imports(root: &Path) -> Result<Imports> {
    let folder = root.parent().context("a root without a folder")?;
    let mut reader = Reader {
        files: Vec::new(),
        modules: Vec::new(),
        current: 0,
        folder: folder.to_owned(),
        outcome: Ok(()),
    };
    reader.modules.push(Module::default());
    reader.file(root.to_owned(), folder.to_owned())?;
    reader.outcome?;
    let modules = Modules(reader.modules);
    let name =
        |file: &PathBuf| file.strip_prefix(folder).unwrap_or(file).to_string_lossy().into_owned();
    Ok(Imports { files: reader.files.iter().map(name).collect(), edges: modules.edges() })
}

/// Reads modules, each in the file or the block that contains it.
struct Reader {
    files: Vec<PathBuf>,
    modules: Vec<Module>,
    current: ModuleId,
    /// Where the files of the current module's children are.
    folder: PathBuf,
    outcome: Result<()>,
}

impl Reader {
    /// Reads a file into the current module, whose children are in `folder`.
    fn file(&mut self, path: PathBuf, folder: PathBuf) -> Result<()> {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let file =
            syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        self.modules[self.current].file = self.files.len();
        self.files.push(path);
        self.block(&file.items, folder);
        Ok(())
    }

    fn block(&mut self, items: &[Item], folder: PathBuf) {
        let outer = std::mem::replace(&mut self.folder, folder);
        let file = self.modules[self.current].file;
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            if let Some(name) = defined(item) {
                self.modules[self.current].items.insert(name.clone(), file);
                if attributes(item).iter().any(|of| of.path().is_ident("macro_export")) {
                    self.modules[0].items.insert(name, file);
                }
            }
            self.visit_item(item);
        }
        self.folder = outer;
    }

    fn module(&mut self, item: &ItemMod) -> Result<()> {
        let name = item.ident.to_string();
        let (id, parent) = (self.modules.len(), self.current);
        let file = self.modules[parent].file;
        self.modules.push(Module { file, parent: Some(parent), ..Module::default() });
        self.modules[parent].children.insert(name.clone(), id);
        self.current = id;
        let folder = self.folder.join(&name);
        if let Some((_, items)) = &item.content {
            self.block(items, folder);
        } else {
            let named = item.attrs.iter().find_map(path_attribute);
            let parent_file = self.files[file].parent().context("a file without a folder")?;
            let path = match named {
                Some(named) => parent_file.join(named),
                None => Some(self.folder.join(format!("{name}.rs")))
                    .filter(|path| path.exists())
                    .unwrap_or_else(|| folder.join("mod.rs")),
            };
            self.file(path, folder)?;
        }
        self.current = parent;
        Ok(())
    }

    fn add_use(&mut self, tree: &UseTree, path: &mut Segments, is_reexport: bool) {
        let mut add = |name: String, path: Segments| {
            self.modules[self.current].uses.push(Use { name, path, is_reexport });
        };
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.add_use(&tree.tree, path, is_reexport);
                path.pop();
            }
            UseTree::Name(tree) if tree.ident == "self" => {
                add(path.last().cloned().unwrap_or_default(), path.clone());
            }
            UseTree::Name(tree) => {
                let name = tree.ident.to_string();
                add(name.clone(), [&path[..], &[name]].concat());
            }
            UseTree::Rename(tree) => {
                add(tree.rename.to_string(), [&path[..], &[tree.ident.to_string()]].concat());
            }
            UseTree::Glob(_) => add("*".to_owned(), path.clone()),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_use(tree, path, is_reexport));
            }
        }
    }

    /// Finds paths in the tokens of a macro call.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end_path(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' && !path.is_empty() => colons += 1,
                other => {
                    self.end_path(&mut path);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.end_path(&mut path);
    }

    fn end_path(&mut self, path: &mut Segments) {
        let path = std::mem::take(path);
        if path.first().is_some_and(|first| ["crate", "self", "super"].contains(&&**first)) {
            self.modules[self.current].paths.insert(path);
        }
    }
}

impl Visit<'_> for Reader {
    fn visit_item_mod(&mut self, item: &ItemMod) {
        if is_test(&item.attrs) || self.outcome.is_err() {
            return;
        }
        self.outcome = self.module(item);
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        self.add_use(&item.tree, &mut Segments::new(), is_reexport);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.modules[self.current].paths.insert(segments);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &Macro) {
        self.visit_path(&item.path);
        self.tokens(item.tokens.clone());
    }
}

/// All modules of a crate; the first is the root.
struct Modules(Vec<Module>);

impl Modules {
    fn edges(&self) -> BTreeSet<(usize, usize)> {
        let mut edges = BTreeSet::new();
        for (id, module) in self.0.iter().enumerate() {
            let uses = module.uses.iter().filter(|item| !item.is_reexport);
            for item in uses {
                match self.resolve(id, &item.path, 0) {
                    Some(Found::Item(file)) => drop(edges.insert((module.file, file))),
                    Some(Found::Module(of)) if item.name == "*" => {
                        edges.insert((module.file, self.0[of].file));
                    }
                    _ => {}
                }
            }
            for path in &module.paths {
                if let Some(Found::Item(file)) = self.resolve(id, path, 0) {
                    edges.insert((module.file, file));
                }
            }
        }
        edges.retain(|(from, to)| from != to);
        edges
    }

    /// The end of a path that stands in a module; `None` for other crates.
    fn resolve(&self, from: ModuleId, path: &[String], depth: usize) -> Option<Found> {
        /// Longer chains of re-exports than this are circles.
        const DEEPEST: usize = 16;
        let (first, rest) = path.split_first().filter(|_| depth < DEEPEST)?;
        let module = match &**first {
            "crate" => 0,
            "self" => from,
            "super" => self.0[from].parent?,
            _ => return self.find(from, path, depth),
        };
        match rest.first() {
            None => Some(Found::Module(module)),
            Some(_) => self.inside(module, rest, depth),
        }
    }

    /// The end of a path in a module that was named. A name that is not there comes from a macro of that file.
    fn inside(&self, module: ModuleId, path: &[String], depth: usize) -> Option<Found> {
        if path[0] == "super" {
            return self.resolve(module, path, depth);
        }
        let missing = (module != 0).then_some(Found::Item(self.0[module].file));
        self.find(module, path, depth).or(missing)
    }

    fn find(&self, module: ModuleId, path: &[String], depth: usize) -> Option<Found> {
        let Module { children, items, uses, .. } = &self.0[module];
        let (name, rest) = path.split_first()?;
        if let Some(child) = children.get(name) {
            return match rest.first() {
                None => Some(Found::Module(*child)),
                Some(_) => self.inside(*child, rest, depth),
            };
        }
        if let Some(file) = items.get(name) {
            return Some(Found::Item(*file));
        }
        if let Some(import) = uses.iter().find(|import| import.name == *name) {
            let path = [&import.path[..], rest].concat();
            return self.resolve(module, &path, depth + 1);
        }
        uses.iter().filter(|import| import.name == "*").find_map(|glob| {
            match self.resolve(module, &glob.path, depth + 1)? {
                Found::Module(of) if of != module => self.find(of, path, depth + 1),
                _ => None,
            }
        })
    }
}

/// The name of the item that this defines.
fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether something is compiled only for tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        is_cfg && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

/// The file that `#[path = "…"]` names.
fn path_attribute(attribute: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(literal) = &pair.value else { return None };
    match &literal.lit {
        syn::Lit::Str(text) if pair.path.is_ident("path") => Some(text.value()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of a crate with these files, as `from -> to`.
    fn of(name: &str, files: &[(&str, &str)]) -> Vec<String> {
        let folder = std::env::temp_dir().join(format!("imports-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let Imports { files, edges } = imports(&folder.join("lib.rs")).unwrap();
        fs::remove_dir_all(folder).unwrap();
        edges.iter().map(|(from, to)| format!("{} -> {}", files[*from], files[*to])).collect()
    }

    #[test]
    fn a_use_counts_for_the_file_that_defines_the_item() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::c::Thing; use std::fmt;"),
            ("a.rs", "use crate::Thing; use super::b::{self, Other}; fn f() -> b::Third {}"),
            ("b/mod.rs", "pub mod c; mod d; pub(crate) use c::*; pub(crate) use d::Other;"),
            ("b/c.rs", "pub struct Thing; pub struct Third;"),
            ("b/d.rs", "pub struct Other;"),
        ];
        assert_eq!(of("reexports", &files), ["a.rs -> b/c.rs", "a.rs -> b/d.rs"]);
    }

    #[test]
    fn paths_in_code_and_in_macros_count_and_tests_do_not() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "fn f() { crate::b::g(); print!(\"{}\", crate::c::H); }"),
            ("b.rs", "pub fn g() {} #[cfg(test)] mod tests { use crate::a::f; }"),
            ("c.rs", "call! { H } mod inner { use super::super::b::g; }"),
        ];
        assert_eq!(of("paths", &files), ["a.rs -> b.rs", "a.rs -> c.rs", "c.rs -> b.rs"]);
    }

    #[test]
    fn a_reexport_that_is_also_used_counts() {
        let files = [
            ("lib.rs", "mod a; pub use a::{Thing, Other}; fn f(_: Thing) {}"),
            ("a.rs", "pub struct Thing; pub struct Other;"),
        ];
        assert_eq!(of("used", &files), ["lib.rs -> a.rs"]);
    }
}
