"""AWS Signature Version 4 of requests to S3, from the server's side and, to put objects there, the client's."""

import hashlib
import hmac
import http.client
import sys
import time

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW_S = 900


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(secret, scope, when, canonical):
    date, region, service, end = scope.split("/")
    key = mac(mac(mac(mac(("AWS4" + secret).encode(), date), region), service), end)
    text = "\n".join([ALGORITHM, when, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    return mac(key, text).hex()


def canonical_request(method, target, names, headers):
    path, _, query = target.partition("?")
    lines = [f"{name}:{' '.join(headers[name].split())}\n" for name in names]
    query = "&".join(sorted(part if "=" in part else part + "=" for part in query.split("&"))) if query else ""
    return "\n".join([method, path, query, "".join(lines), ";".join(names), headers["x-amz-content-sha256"]])


def refusal(method, target, headers, secrets, region, token="", ahead_s=0):
    """None, or what is wrong: (the code of S3, words). headers: names in lower case; secrets: by access key; ahead_s: the server's
    clock."""
    if "authorization" not in headers:
        return "AccessDenied", "Access Denied"
    try:
        algorithm, rest = headers["authorization"].split(" ", 1)
        fields = dict(field.strip().split("=", 1) for field in rest.split(","))
        access, scope = fields["Credential"].split("/", 1)
        names, when = fields["SignedHeaders"].split(";"), headers["x-amz-date"]
        date, its_region, service, end = scope.split("/")
        skew = abs(time.time() + ahead_s - (time.mktime(time.strptime(when, "%Y%m%dT%H%M%SZ")) - time.timezone))
    except (KeyError, ValueError) as error:
        return "AuthorizationHeaderMalformed", f"{error!r}"
    if algorithm != ALGORITHM or service != "s3" or end != "aws4_request" or date != when[:8]:
        return "AuthorizationHeaderMalformed", f"{algorithm} {scope}"
    if access not in secrets:
        return "InvalidAccessKeyId", access
    if its_region != region:
        return "AuthorizationHeaderMalformed", f"the region {its_region} is wrong; expecting {region}"
    if skew > SKEW_S:
        return "RequestTimeTooSkewed", when
    unsigned = [name for name in headers if name == "host" or name.startswith("x-amz-") if name not in names]
    if unsigned or names != sorted(names):
        return "AccessDenied", f"headers are not signed, or in no order: {names}"
    if headers.get("x-amz-security-token", "") != token:
        return "InvalidToken", "the session's token"
    missing = [name for name in names if name not in headers]
    if missing:
        return "SignatureDoesNotMatch", f"signed, and not there: {missing}"
    expected = signature(secrets[access], scope, when, canonical_request(method, target, names, headers))
    if not hmac.compare_digest(expected, fields["Signature"]):
        return "SignatureDoesNotMatch", fields["SignedHeaders"]
    return None


def signed_headers(method, target, headers, access, secret, region, payload=b""):
    """The headers with those of the signature; there must be a host among them."""
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    headers = dict(headers, **{"x-amz-date": when, "x-amz-content-sha256": hashlib.sha256(payload).hexdigest()})
    names, scope = sorted(headers), f"{when[:8]}/{region}/s3/aws4_request"
    value = signature(secret, scope, when, canonical_request(method, target, names, headers))
    return dict(headers, authorization=f"{ALGORITHM} Credential={access}/{scope}, SignedHeaders={';'.join(names)}, "
                                       f"Signature={value}")


def main():
    """s3_signature.py ENDPOINT ACCESS SECRET REGION PATH [FILE [HEADER]]: PUTs a bucket, or the file as an object, with a
    condition. PATH is escaped."""
    endpoint, access, secret, region, path = sys.argv[1:6]
    host = endpoint.partition("://")[2]
    payload = b""
    if len(sys.argv) > 6:
        with open(sys.argv[6], "rb") as f:
            payload = f.read()
    headers = {"host": host}
    for header in sys.argv[7:]:
        name, _, value = header.partition(": ")
        headers[name.lower()] = value
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("PUT", path, payload, signed_headers("PUT", path, headers, access, secret, region, payload))
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status != 200:
        sys.exit(f"s3_signature.py: {path}: {answer.status} {text}")


if __name__ == "__main__":
    main()
