//! The table of routes: the most specific one that matches, found quickly.
