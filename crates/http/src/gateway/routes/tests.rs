//! The table of routes against tables of examples, and against a model that tries every route.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::super::pattern::normalise;
use super::*;

fn build(patterns: &[&str]) -> Result<Routes, RoutesError> {
    Routes::new(patterns.iter().map(|text| Pattern::parse(text).unwrap()).collect())
}

/// What is found, in words: the route and its parameters, the methods, or nothing.
fn said(routes: &Routes, request: &str) -> String {
    let (method, path) = request.split_once(' ').unwrap();
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    match routes.find(&method, &normalise(path).unwrap()) {
        Found::None => "none".to_owned(),
        Found::MethodNotAllowed { allow } => format!("allow {allow:?}"),
        Found::Route { index, params } => {
            let params: Vec<_> =
                params.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{} {}", routes.pattern(index).unwrap(), params.join(","))
        }
    }
}

fn assert_finds(patterns: &[&str], table: &[(&str, &str)]) {
    let routes = build(patterns).unwrap();
    for (request, expected) in table {
        assert_eq!(said(&routes, request).trim_end(), *expected, "{request}");
    }
}

#[test]
fn the_most_specific_route_wins_whatever_the_order() {
    let patterns = [
        "* /**",
        "POST /orders/{id}/**",
        "POST /orders/{id}",
        "POST /orders/new",
        "* /orders/new",
        "POST /orders",
        "POST /orders/{id}/lines/{line}",
        "POST /orders/",
    ];
    let table = [
        ("POST /orders", "POST /orders"),
        ("POST /orders/", "POST /orders/"),
        ("POST /orders//", "* /**"),
        ("POST /orders/new", "POST /orders/new"),
        ("PUT /orders/new", "* /orders/new"),
        ("POST /orders/NEW", "POST /orders/{id} id=NEW"),
        ("POST /orders/7", "POST /orders/{id} id=7"),
        ("POST /orders/7/", "POST /orders/{id}/** id=7"),
        ("POST /orders/7/lines/2", "POST /orders/{id}/lines/{line} id=7,line=2"),
        ("POST /orders/7/lines", "POST /orders/{id}/** id=7"),
        ("POST /orders/7/lines/2/x", "POST /orders/{id}/** id=7"),
        ("POST /orders/new/x", "POST /orders/{id}/** id=new"),
        ("GET /orders", "* /**"),
        ("GET /", "* /**"),
        ("POST /orders/a%2Bb", "POST /orders/{id} id=a%2Bb"),
    ];
    assert_finds(&patterns, &table);
    let reversed: Vec<&str> = patterns.iter().rev().copied().collect();
    assert_finds(&reversed, &table);
}

#[test]
fn a_way_that_leads_nowhere_is_left_again() {
    assert_finds(
        &["GET /a/{x}/c", "GET /a/b/d", "GET /{p}/{q}/{r}/end", "GET /a/**"],
        &[
            ("GET /a/b/c", "GET /a/{x}/c x=b"),
            ("GET /a/b/d", "GET /a/b/d"),
            ("GET /a/b/e", "GET /a/**"),
            ("GET /z/b/d/end", "GET /{p}/{q}/{r}/end p=z,q=b,r=d"),
            ("GET /a/b/c/end", "GET /a/**"),
            ("GET /z/b/d", "none"),
            ("GET /a", "GET /a/**"),
            ("GET /a/", "GET /a/**"),
            ("GET /A", "none"),
        ],
    );
}

#[test]
fn a_method_that_no_route_takes_is_told_which_are_taken() {
    assert_finds(
        &["POST,PUT /a/b", "GET /a/{x}", "DELETE /a/**", "POST /c"],
        &[
            ("PATCH /a/b", "allow [DELETE, GET, HEAD, POST, PUT]"),
            ("GET /a/b", "GET /a/{x} x=b"),
            ("PUT /a/z", "allow [DELETE, GET, HEAD]"),
            ("POST /a/z/y", "allow [DELETE]"),
            ("OPTIONS /c", "allow [POST]"),
            ("post /c", "allow [POST]"),
            ("POST /d", "none"),
        ],
    );
}

#[test]
fn head_is_served_by_get_unless_another_route_is_as_specific() {
    assert_finds(
        &[
            "GET /a",
            "HEAD /{x}",
            "GET /b",
            "HEAD /b",
            "GET /c",
            "* /c",
            "GET /d/{x}",
            "* /d/**",
            "POST /e",
            "GET /e/**",
        ],
        &[
            ("HEAD /a", "GET /a"),
            ("HEAD /b", "HEAD /b"),
            ("HEAD /c", "* /c"),
            ("HEAD /d/1", "GET /d/{x} x=1"),
            ("HEAD /d/1/2", "* /d/**"),
            ("HEAD /e", "GET /e/**"),
            ("HEAD /f", "HEAD /{x} x=f"),
            ("GET /z", "allow [HEAD]"),
        ],
    );
}

#[test]
fn routes_that_match_the_same_requests_are_refused() {
    let collide = |one: &str, two: &str| match build(&["GET /other", one, two]) {
        Err(RoutesError::Collide { index: 2, first, second }) => {
            (first, second) == (one.into(), two.into())
        }
        Err(
            RoutesError::Collide { .. } | RoutesError::TooMany { .. } | RoutesError::Covered { .. },
        )
        | Ok(_) => false,
    };
    assert!(collide("POST /a/b", "POST /a/b"));
    assert!(collide("GET /a/{x}", "GET /a/{y}"));
    assert!(collide("DELETE,POST /a", "POST,PUT /a"));
    assert!(collide("* /a/**", "* /a/**"));
    assert!(!collide("GET /a", "POST /a"));
    assert!(!collide("GET /a", "* /a"));
    assert!(!collide("GET /a", "GET /a/"));
    assert!(!collide("GET /a", "GET /a/**"));
    assert!(!collide("GET /a", "HEAD /a"));
    let said = build(&["GET /a/{x}", "GET /a/{y}"]).unwrap_err();
    let expected =
        "the routes `GET /a/{x}` and `GET /a/{y}` match the same requests; keep one of them";
    assert_eq!((said.to_string().as_str(), said.index()), (expected, Some(1)));
}

#[test]
fn a_route_that_can_never_match_is_refused() {
    let covered = |patterns: &[&str]| match build(patterns) {
        Ok(_) => None,
        Err(RoutesError::Covered { route, .. }) => Some(route),
        Err(error @ (RoutesError::Collide { .. } | RoutesError::TooMany { .. })) => {
            panic!("{error}")
        }
    };
    let all = |route: &str| Some(route.to_owned());
    assert_eq!(covered(&["GET /a/**", "GET /a", "GET /a/{x}/**", "GET /a//**"]), all("GET /a/**"));
    assert_eq!(covered(&["GET /a/**", "* /a", "* /a/{x}/**", "GET /a//**"]), all("GET /a/**"));
    assert_eq!(covered(&["HEAD /**", "GET /{x}/**", "* //**"]), all("HEAD /**"));
    assert_eq!(covered(&["* /**", "* /{x}/**", "* //**"]), all("* /**"));
    let deep = ["GET /**", "GET //**", "GET /{a}", "GET /{a}//**", "GET /{a}/{b}/**"];
    assert_eq!(covered(&deep), all("GET /**"));
    let pair = ["GET,PUT /a/**", "GET /a", "PUT /a", "* /a/{x}/**", "GET /a//**", "PUT /a//**"];
    assert_eq!(covered(&pair), all("GET,PUT /a/**"));
    // One method, one empty segment or one depth that is left is enough.
    assert_eq!(covered(&["GET /a/{x}", "GET /a/b"]), None);
    assert_eq!(covered(&["GET /a/**", "GET /a", "GET /a/{x}/**"]), None);
    assert_eq!(covered(&["GET /a/**", "GET /a/{x}/**", "GET /a//**"]), None);
    assert_eq!(covered(&["GET /**", "GET //**", "GET /{a}", "GET /{a}/{b}/**"]), None);
    assert_eq!(covered(&["GET,PUT /a/**", "GET /a", "GET /a/{x}/**", "GET /a//**"]), None);
    assert_eq!(covered(&["* /**", "GET,PUT /{x}/**", "GET,PUT //**"]), None);
}

#[test]
fn a_table_is_bounded_and_may_be_empty() {
    let many = |count: usize| {
        Routes::new(
            (0..count).map(|n| Pattern::parse(&format!("GET /r{n}/{{x}}")).unwrap()).collect(),
        )
    };
    let routes = many(ROUTES_MAX).unwrap();
    assert_eq!(said(&routes, "GET /r9999/7"), "GET /r9999/{x} x=7");
    assert_eq!(many(ROUTES_MAX + 1).unwrap_err(), RoutesError::TooMany { count: ROUTES_MAX + 1 });
    assert_eq!(said(&build(&[]).unwrap(), "GET /"), "none");
}

/// How a pattern matches a path: by which kind of segment at each place, the least being the most
/// specific, and what its names stand for. None when it does not.
fn matched<'p>(pattern: &Pattern, path: &'p [&'p str]) -> Option<(Vec<u8>, Vec<&'p str>)> {
    let (mut ranks, mut values) = (Vec::new(), Vec::new());
    for (at, segment) in pattern.segments().iter().enumerate() {
        match (segment, path.get(at)) {
            (Segment::Rest, _) => {
                ranks.push(2);
                return Some((ranks, values));
            }
            (Segment::Literal(text), Some(part)) if **text == **part => ranks.push(0),
            (Segment::Name(_), Some(part)) if !part.is_empty() => {
                ranks.push(1);
                values.push(*part);
            }
            (Segment::Literal(_) | Segment::Name(_), _) => return None,
        }
    }
    // The end is as exact as a literal.
    ranks.push(0);
    (pattern.segments().len() == path.len()).then_some((ranks, values))
}

/// How well a pattern matches a method, the least being the best.
fn method_rank(pattern: &Pattern, method: &Method) -> Option<u8> {
    let has = |method: &Method| pattern.methods().contains(method);
    if has(method) {
        Some(0)
    } else if pattern.is_any_method() {
        Some(1)
    } else {
        (method == Method::HEAD && has(&Method::GET)).then_some(2)
    }
}

/// The same answer by trying every route.
fn model(patterns: &[Pattern], method: &Method, path: &NormalPath) -> Found {
    let path: Vec<&str> = path.segments().collect();
    let matching = patterns.iter().enumerate().filter_map(|(index, pattern)| {
        let (ranks, values) = matched(pattern, &path)?;
        Some((ranks, index, values))
    });
    let matching: Vec<_> = matching.collect();
    let best = matching.iter().filter_map(|(ranks, index, values)| {
        Some(((ranks, method_rank(&patterns[*index], method)?), index, values))
    });
    let best = best.min_by(|one, two| one.0.partial_cmp(&two.0).unwrap_or(Ordering::Equal));
    if let Some((_, index, values)) = best {
        let names = patterns[*index].names().cloned();
        let values = values.iter().map(|value| (*value).to_owned());
        return Found::Route { index: *index, params: names.zip(values).collect() };
    }
    let allow = matching.iter().flat_map(|(_, index, _)| patterns[*index].methods().to_vec());
    let allow = sorted(allow.collect());
    if allow.is_empty() { Found::None } else { Found::MethodNotAllowed { allow } }
}

/// Texts of few segments over few words, so that they meet often.
fn pattern_text() -> impl Strategy<Value = String> {
    let segment = prop_oneof![Just("a"), Just("b"), Just(""), Just("{}"), Just("{}")];
    let methods = prop_oneof![
        Just("*"),
        Just("GET"),
        Just("HEAD"),
        Just("POST"),
        Just("GET,POST"),
        Just("PUT")
    ];
    let path = (proptest::collection::vec(segment, 0..4), any::<bool>());
    (methods, path).prop_map(|(methods, (segments, has_rest))| {
        let named = segments.iter().enumerate().map(|(at, segment)| match *segment {
            "{}" => format!("{{n{at}}}"),
            literal => literal.to_owned(),
        });
        let mut segments: Vec<String> = named.collect();
        if has_rest || segments.is_empty() {
            segments.push("**".to_owned());
        }
        format!("{methods} /{}", segments.join("/"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_tree_finds_what_trying_every_route_finds(
        texts in proptest::collection::vec(pattern_text(), 0..12),
        paths in proptest::collection::vec("(/(|a|b|c)){1,5}", 1..12),
    ) {
        // Routes that collide are left out one by one; the rest is a table.
        let mut patterns: Vec<Pattern> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let routes = loop {
            match Routes::new(patterns.clone()) {
                Ok(routes) => break routes,
                Err(error) => drop(patterns.remove(error.index().unwrap())),
            }
        };
        for path in &paths {
            let path = normalise(path).unwrap();
            for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::TRACE] {
                prop_assert_eq!(
                    routes.find(&method, &path),
                    model(&patterns, &method, &path),
                    "{} {} in {:?}", method, path, texts
                );
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_route_is_refused_as_covered_only_when_no_short_path_reaches_it(
        texts in proptest::collection::vec(pattern_text(), 1..9),
    ) {
        let patterns: Vec<Pattern> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let refused = match Routes::new(patterns.clone()) {
            Err(RoutesError::Covered { index, .. }) => Some(index),
            Err(RoutesError::Collide { .. }) => return Ok(()),
            Err(error @ RoutesError::TooMany { .. }) => panic!("{error}"),
            Ok(_) => None,
        };
        // Patterns have at most three segments before `**`: four of these words reach every place.
        let mut paths = vec![String::new()];
        let mut reached = vec![false; patterns.len()];
        for _ in 0..4 {
            let longer = |path: &String| ["", "a", "b", "c"].map(|part| format!("{path}/{part}"));
            paths = paths.iter().flat_map(longer).collect();
            for path in &paths {
                let path = normalise(path).unwrap();
                for method in ["GET", "HEAD", "POST", "PUT", "OTHER"] {
                    let method = Method::from_bytes(method.as_bytes()).unwrap();
                    if let Found::Route { index, .. } = model(&patterns, &method, &path) {
                        reached[index] = true;
                    }
                }
            }
        }
        match refused {
            Some(index) => prop_assert!(!reached[index], "{} in {:?}", patterns[index], texts),
            None => prop_assert!(reached.iter().all(|reached| *reached), "{:?}", texts),
        }
    }
}
