//! What a sandbox keeps in and keeps out, tried from inside.

mod support;

mod basics;
