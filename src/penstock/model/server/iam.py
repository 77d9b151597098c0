"""What IAM database authentication requires: the role, the policy, and what to check if a token is refused. Pure.

Source: docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.html
"""

from __future__ import annotations

import json

from penstock.model.server.endpoints import is_rds_proxy, region_of

# Placeholder in the policy for a value that is not in an endpoint's name.
_ACCOUNT = "ACCOUNT"


def connect_arn(*, host: str, user: str) -> str:
    """Return the ARN for which a policy must allow rds-db:connect. Replace the words in capitals.

    >>> connect_arn(host="db1.c9akciq32.eu-west-1.rds.amazonaws.com", user="loader")
    'arn:aws:rds-db:eu-west-1:ACCOUNT:dbuser:DB_RESOURCE_ID/loader'
    """
    found = region_of(host) or "REGION"
    partition = "aws-cn" if found.startswith("cn-") else "aws-us-gov" if found.startswith("us-gov-") else "aws"
    # A proxy's id is the end of its ARN (prx-...), a cluster's begins with cluster-, an instance's with db-.
    resource = "PROXY_RESOURCE_ID" if is_rds_proxy(host) else "DB_RESOURCE_ID"
    return f"arn:{partition}:rds-db:{found}:{_ACCOUNT}:dbuser:{resource}/{user}"


def connect_policy(*, host: str, user: str) -> str:
    """Return the IAM policy, as JSON, that allows an AWS identity to connect as the database user."""
    statement = {
        "Effect": "Allow",
        "Action": "rds-db:connect",
        "Resource": connect_arn(host=host, user=user),
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def grant_rds_iam(user: str) -> str:
    """Return the statement that lets a role log in with IAM tokens.

    >>> grant_rds_iam('o"hara')
    'GRANT rds_iam TO "o""hara";'
    """
    quoted = user.replace('"', '""')
    return f'GRANT rds_iam TO "{quoted}";'


def explain_refusal(*, host: str, user: str, now: str) -> str:
    """Return what to check if a server refused a token; `now` is this machine's time."""
    return (
        "If the token was refused, check in this order:\n"
        "1. IAM database authentication is switched on for the server.\n"
        f"2. The role may use it; as a privileged user: {grant_rds_iam(user)}\n"
        "3. The AWS identity of this machine (aws sts get-caller-identity) has this policy, with the words in capitals "
        "replaced (DbiResourceId of aws rds describe-db-instances, DbClusterResourceId of describe-db-clusters):\n"
        f"   {connect_policy(host=host, user=user)}\n"
        f"4. This machine's clock is right: it says {now}, and a token is good for 15 minutes.\n"
        "5. Host and port are the endpoint's own, also through a tunnel, and sslmode is not disable."
    )
