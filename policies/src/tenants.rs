//! Under which names strangers have names of their own.

use crate::host::Name;

/// Whether a name below this one may belong to someone else: every customer of a service has one there.
pub(crate) fn are_below(name: &Name) -> bool {
    let base = name.as_str();
    let is_below = |inner: &str, outer: &str| {
        inner
            .strip_suffix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    SHARED.iter().any(|shared| is_below(shared, base))
        || SHARED_AT_ANY_DEPTH
            .iter()
            .any(|shared| is_below(base, shared) || is_below(shared, base))
}

/// A customer has the first label, and all below it is the customer's.
const SHARED: &[&str] = &[
    "algolia.net",
    "atlassian.net",
    "auth0.com",
    "azure-api.net",
    "azuredatabricks.net",
    "azurewebsites.net",
    "b-cdn.net",
    "cloud.databricks.com",
    "cloud.qdrant.io",
    "cloudfront.net",
    "cloudfunctions.net",
    "digitaloceanspaces.com",
    "execute-api.us-east-1.amazonaws.com",
    "firebaseio.com",
    "freshdesk.com",
    "gcp.databricks.com",
    "ghe.com",
    "grafana.net",
    "herokuapp.com",
    "hf.space",
    "mongodb.net",
    "my.salesforce.com",
    "myshopify.com",
    "netlify.app",
    "ngrok.app",
    "ngrok.io",
    "okta.com",
    "pages.dev",
    "pinecone.io",
    "r2.cloudflarestorage.com",
    "run.app",
    "slack.com",
    "snowflakecomputing.com",
    "supabase.co",
    "trycloudflare.com",
    "vercel.app",
    "web.app",
    "workers.dev",
    "zendesk.com",
];

/// Regions and services stand between the customer's label and this.
const SHARED_AT_ANY_DEPTH: &[&str] = &[
    "amazonaws.com",
    "amazonaws.com.cn",
    "azure.com",
    "backblazeb2.com",
    "core.windows.net",
    "googleusercontent.com",
    "storage.googleapis.com",
    "vault.azure.net",
    "wasabisys.com",
];
