// HTTP requests and answers as plain values, independent of sockets.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/http/byte_budget.h"
#include "services/tls/roles.h"

namespace skein::services {

struct Caller;

}  // namespace skein::services

namespace skein::services::http {

class BodySink;

struct Header {
  std::string name;
  std::string value;
};

// The value of the first header of that name (ASCII case ignored), or "".
std::string_view FindHeader(const std::vector<Header>& headers, std::string_view name);

// Whether a Content-Type names `type` (lower case), whatever its parameters.
bool IsMediaType(std::string_view content_type, std::string_view type);

struct Request {
  std::string method;  // as sent: "GET", "POST", ...
  std::string path;    // percent-decoded, without the query
  std::string query;   // as sent, without '?'
  std::vector<Header> headers;
  std::string body;
  std::string remote;  // address of the peer
  std::string id;      // in logs and in X-Request-Id; made by the server
  // The request's share of ServerOptions::bodies, until its last copy is destroyed; null: none.
  std::shared_ptr<ByteBudget::Lease> held = nullptr;
  // What took its body, which is empty here (body_sink.h); null: nothing did.
  std::shared_ptr<BodySink> sink = nullptr;
  // Not sent: whose API key it came with; null: it had none, or none is needed. What a Caller is
  // belongs to the service (services/router/access/caller.h).
  std::shared_ptr<const Caller> caller = nullptr;
  // Not sent: the roles that the client's certificate names; empty: it has presented none.
  std::optional<tls::RoleSet> certified = {};

  std::string_view Get(std::string_view name) const { return FindHeader(headers, name); }
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<Header> headers;  // additional ones; values with CR, LF or NUL are dropped
  std::string body;

  // Not sent: the contents of an error body, for logs and counts.
  std::string error, error_param, error_code;
  // Not sent: a share of ServerOptions::bodies that is freed when the answer has been sent. Of Send
  // only, not of a stream.
  std::shared_ptr<ByteBudget::Lease> held = nullptr;
  // Not sent: of a stream, in place of ServerOptions::answer_timeout, from its head on.
  std::optional<std::chrono::milliseconds> within = std::nullopt;
  // Not sent: whoever made the answer has logged and counted it.
  bool noted = false;
};

// "Not Found" for 404.
std::string_view Reason(int status);

// How the end of an answer's body is marked.
enum class Framing { kLength, kChunked, kUntilClose };

// The status line and headers of `response`, including the empty line. `unix_seconds` is for its
// Date header. 204 has no body and no Content-Length (RFC 9110 8.6).
std::string SerializeHead(const Response& response, Framing framing, bool keep_alive,
                          int64_t unix_seconds);

// "Sun, 06 Nov 1994 08:49:37 GMT": IMF-fixdate of RFC 9110 5.6.7.
std::string HttpDate(int64_t unix_seconds);

// Splits a request target (origin form, absolute form or "*") into path and query, and decodes the
// path. False: malformed.
bool ParseTarget(std::string_view target, std::string* path, std::string* query);

// Splits a query ("a=1&b=two+words") into decoded names and values, in order. False: malformed.
bool ParseQuery(std::string_view query, std::vector<std::pair<std::string, std::string>>* fields);

}  // namespace skein::services::http
