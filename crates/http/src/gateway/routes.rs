//! The table of routes: the most specific one that matches, found quickly.
//!
//! A tree over segments, so a lookup costs what the path has in parts, not what the table has in
//! routes. Compared segment by segment, a literal comes before `{name}` and `{name}` before `**`;
//! where the paths are equally specific, a named method comes before `*`. The order in which routes
//! are written never matters: two that would need it are refused when the table is built.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;

use super::pattern::{NormalPath, Pattern, Segment};

/// The most routes in one table.
pub const ROUTES_MAX: usize = 10_000;

/// Routes that cannot stand in one table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoutesError {
    /// There are more than [`ROUTES_MAX`].
    #[error("there are {count} routes; at most {ROUTES_MAX} are allowed: use `{{name}}` and `**`")]
    TooMany {
        /// How many there were.
        count: usize,
    },
    /// Two routes match the same requests.
    #[error("the routes `{first}` and `{second}` match the same requests; keep one of them")]
    Collide {
        /// The index of the later route.
        index: usize,
        /// The earlier route.
        first: String,
        /// The later route.
        second: String,
    },
    /// Other, more specific routes leave nothing for this one.
    #[error("the route `{route}` can never match: more specific routes cover all of it")]
    Covered {
        /// The index of the route.
        index: usize,
        /// The route.
        route: String,
    },
}

impl RoutesError {
    /// The index of the route to change; none when there are too many.
    #[must_use]
    pub const fn index(&self) -> Option<usize> {
        match self {
            Self::TooMany { .. } => None,
            Self::Collide { index, .. } | Self::Covered { index, .. } => Some(*index),
        }
    }
}

/// What was found for a method and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The most specific route that matches.
    Route {
        /// Its place in the list that the table was built from.
        index: usize,
        /// What its names stand for, in their order and in the path's one spelling.
        params: Vec<(Arc<str>, String)>,
    },
    /// Routes match the path, none the method.
    MethodNotAllowed {
        /// The methods that they match, in alphabetical order.
        allow: Vec<Method>,
    },
    /// No route matches the path.
    None,
}

/// Routes that were found fit to stand together.
#[derive(Debug, Clone)]
pub struct Routes {
    /// The first is the root: the place before any segment.
    nodes: Vec<Node>,
    patterns: Vec<Pattern>,
}

/// A place in the tree, reached by the segments before it.
#[derive(Debug, Clone, Default)]
struct Node {
    literals: HashMap<Box<str>, usize>,
    name: Option<usize>,
    /// The routes that end here.
    ends: Methods,
    /// The routes whose `**` begins here.
    rests: Methods,
}

/// Routes of one path shape, by method.
#[derive(Debug, Clone, Default)]
struct Methods {
    named: Vec<(Method, usize)>,
    any: Option<usize>,
}

/// A method, or any one that no route names.
#[derive(Debug, Clone, Copy)]
enum Wanted<'m> {
    Named(&'m Method),
    Unnamed,
}

impl Methods {
    /// The route for a method. A GET route answers HEAD, as everywhere in HTTP.
    fn find(&self, wanted: Wanted<'_>) -> Option<usize> {
        let named = |wanted: &Method| {
            self.named.iter().find(|(method, _)| method == wanted).map(|(_, index)| *index)
        };
        match wanted {
            Wanted::Unnamed => self.any,
            Wanted::Named(method) if method == Method::HEAD => {
                named(method).or(self.any).or_else(|| named(&Method::GET))
            }
            Wanted::Named(method) => named(method).or(self.any),
        }
    }

    /// Adds a route; the other one's index when they collide.
    fn add(&mut self, pattern: &Pattern, index: usize) -> Result<(), usize> {
        if pattern.is_any_method() {
            return self.any.replace(index).map_or(Ok(()), Err);
        }
        for method in pattern.methods() {
            if let Some((_, other)) = self.named.iter().find(|(named, _)| named == method) {
                return Err(*other);
            }
            self.named.push((method.clone(), index));
        }
        Ok(())
    }
}

impl Routes {
    /// A table of `patterns`; an index that is found is the place in this list.
    ///
    /// # Errors
    /// A [`RoutesError`] that names the routes which cannot stand together.
    pub fn new(patterns: Vec<Pattern>) -> Result<Self, RoutesError> {
        if patterns.len() > ROUTES_MAX {
            return Err(RoutesError::TooMany { count: patterns.len() });
        }
        let mut routes = Self { nodes: vec![Node::default()], patterns };
        let places = (0..routes.patterns.len()).map(|index| routes.add(index));
        let places = places.collect::<Result<Vec<_>, _>>()?;
        for (index, at) in places.into_iter().enumerate() {
            if routes.is_covered(index, at) {
                let route = routes.patterns[index].to_string();
                return Err(RoutesError::Covered { index, route });
            }
        }
        Ok(routes)
    }

    /// The pattern of a route that was found.
    #[must_use]
    pub fn pattern(&self, index: usize) -> Option<&Pattern> {
        self.patterns.get(index)
    }

    /// The most specific route for a request.
    #[must_use]
    pub fn find(&self, method: &Method, path: &NormalPath) -> Found {
        let segments: Vec<&str> = path.segments().collect();
        let mut search = Search { routes: self, method, named: Vec::new(), allow: Vec::new() };
        if let Some(index) = search.from(0, &segments) {
            let values = search.named.iter().map(|value| (*value).to_owned());
            let params = self.patterns[index].names().cloned().zip(values).collect();
            return Found::Route { index, params };
        }
        if search.allow.is_empty() {
            return Found::None;
        }
        Found::MethodNotAllowed { allow: sorted(search.allow) }
    }

    /// Adds a route to the tree and gives the place where it ends, or where its `**` begins.
    fn add(&mut self, index: usize) -> Result<usize, RoutesError> {
        let Self { nodes, patterns } = self;
        let pattern = &patterns[index];
        let mut at = 0;
        for segment in pattern.segments() {
            let new = nodes.len();
            let node = &mut nodes[at];
            at = match segment {
                Segment::Literal(text) => *node.literals.entry(text.clone()).or_insert(new),
                Segment::Name(_) => *node.name.get_or_insert(new),
                Segment::Rest => at,
            };
            if at == new {
                nodes.push(Node::default());
            }
        }
        let node = &mut nodes[at];
        let methods = if pattern.has_wildcard() { &mut node.rests } else { &mut node.ends };
        let added = methods.add(pattern, index);
        added.map(|()| at).map_err(|other| RoutesError::Collide {
            index,
            first: patterns[other].to_string(),
            second: pattern.to_string(),
        })
    }

    /// Whether more specific routes take every request that this one matches.
    ///
    /// Literals are finitely many, so they never use up a `{name}`. What remains is a `**`: it is
    /// covered when no rest of a path is left for it, be it none, an empty segment or another.
    fn is_covered(&self, index: usize, at: usize) -> bool {
        let pattern = &self.patterns[index];
        if !pattern.has_wildcard() {
            return false;
        }
        let leaves_nothing = |wanted| {
            // Before the root's first segment there is no path at all.
            let ends = at == 0 || self.nodes[at].ends.find(wanted).is_some();
            ends && self.takes_each_longer(at, wanted)
        };
        if pattern.is_any_method() {
            return leaves_nothing(Wanted::Unnamed);
        }
        pattern.methods().iter().all(|method| leaves_nothing(Wanted::Named(method)))
    }

    /// Whether routes below this place match each path that goes on from it.
    fn takes_each_longer(&self, at: usize, wanted: Wanted<'_>) -> bool {
        let Node { literals, name, .. } = &self.nodes[at];
        [literals.get("").copied(), *name].into_iter().all(|below| {
            below.is_some_and(|below| {
                let Node { ends, rests, .. } = &self.nodes[below];
                rests.find(wanted).is_some()
                    || (ends.find(wanted).is_some() && self.takes_each_longer(below, wanted))
            })
        })
    }
}

/// One lookup: what it has read so far, and what it could have been asked.
struct Search<'a> {
    routes: &'a Routes,
    method: &'a Method,
    /// What the names on the way to here stand for.
    named: Vec<&'a str>,
    /// Methods of routes that match the path.
    allow: Vec<Method>,
}

impl<'a> Search<'a> {
    /// The best route from a place on. No place is looked at twice: one way leads to each.
    fn from(&mut self, at: usize, segments: &[&'a str]) -> Option<usize> {
        let routes = self.routes;
        let node = &routes.nodes[at];
        let Some((first, others)) = segments.split_first() else {
            return self.choose(&node.ends).or_else(|| self.choose(&node.rests));
        };
        if let Some(below) = node.literals.get(*first)
            && let Some(index) = self.from(*below, others)
        {
            return Some(index);
        }
        if let Some(below) = node.name
            && !first.is_empty()
        {
            self.named.push(first);
            if let Some(index) = self.from(below, others) {
                return Some(index);
            }
            self.named.pop();
        }
        self.choose(&node.rests)
    }

    /// The route for the method, or a note of which methods there are.
    fn choose(&mut self, methods: &Methods) -> Option<usize> {
        let found = methods.find(Wanted::Named(self.method));
        if found.is_none() {
            self.allow.extend(methods.named.iter().map(|(method, _)| method.clone()));
        }
        found
    }
}

/// The methods, each once, in alphabetical order, and HEAD where there is GET.
fn sorted(mut methods: Vec<Method>) -> Vec<Method> {
    if methods.contains(&Method::GET) {
        methods.push(Method::HEAD);
    }
    methods.sort_unstable_by(|one, two| one.as_str().cmp(two.as_str()));
    methods.dedup();
    methods
}

#[cfg(test)]
mod tests;
