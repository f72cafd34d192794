//! The Worker: translates HTTP into events and answers into HTTP, and decides nothing.
//!
//! A request goes `route` → `calls` → an object (`pop` or `hub`) → `desk` (group commit) → the
//! core → `sql`. Only this folder knows the crate `worker`.

mod calls;
mod config;
mod desk;
mod dev;
mod hub;
mod pop;
mod route;
mod show;
mod sql;
mod token;

use worker::{Context, Env, Request, Response, event};

#[event(fetch)]
async fn fetch(request: Request, env: Env, _context: Context) -> worker::Result<Response> {
    route::serve(request, env).await
}
