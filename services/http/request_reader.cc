#include "services/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <limits>
#include <utility>

#include "services/http/error.h"

namespace skein::services::http {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;

struct RequestReader::Parser {
  beast_http::request_parser<beast_http::string_body> http;
};

namespace {

using Message = beast_http::request<beast_http::string_body>;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

Response TranslateError(boost::beast::error_code ec, size_t header_max, size_t body_max) {
  if (ec == beast_http::error::body_limit) {
    return ErrorResponse(413,
                         "The request body is larger than " + std::to_string(body_max) + " bytes.",
                         {}, "request_too_large");
  }
  if (ec == beast_http::error::header_limit) {
    return ErrorResponse(
        431, "The request header is larger than " + std::to_string(header_max) + " bytes.", {},
        "header_too_large");
  }
  return ErrorResponse(400, "Malformed HTTP request: " + ec.message() + ".", {}, "bad_request");
}

bool IsChunkedOnly(std::string_view codings) {
  std::string text;
  for (char c : codings) {
    if (c != ' ' && c != '\t') text.push_back(static_cast<char>(std::tolower(c)));
  }
  return text == "chunked";
}

}  // namespace

RequestReader::RequestReader(size_t header_bytes_max, size_t body_bytes_max, BodyPlanFn plan,
                             size_t planned_bytes_max)
    : header_bytes_max_(header_bytes_max),
      body_bytes_max_(body_bytes_max),
      planned_bytes_max_(std::max(body_bytes_max, planned_bytes_max)),
      plan_(std::move(plan)) {
  Reset();
}

RequestReader::~RequestReader() = default;

void RequestReader::Reset() {
  parser_ = std::make_unique<Parser>();
  parser_->http.header_limit(static_cast<uint32_t>(header_bytes_max_));
  // The limit is the request's own: Classify, PlanBody.
  parser_->http.body_limit(std::numeric_limits<uint64_t>::max());
  parser_->http.eager(true);
  started_ = header_checked_ = false;
  bytes_max_ = body_bytes_max_;
  taken_bytes_ = 0;
  request_ = Request();
}

RequestReader::State RequestReader::Fail(Response error) {
  error_ = std::move(error);
  return State::kError;
}

RequestReader::State RequestReader::Feed(std::string_view bytes, size_t* consumed) {
  *consumed = 0;
  if (!started_) {  // RFC 9112 2.2: empty lines before a request line are ignored
    while (*consumed < bytes.size() && (bytes[*consumed] == '\r' || bytes[*consumed] == '\n')) {
      ++*consumed;
    }
    bytes.remove_prefix(*consumed);
  }
  if (bytes.empty()) return State::kMore;
  started_ = true;
  while (!bytes.empty() && !parser_->http.is_done()) {
    boost::beast::error_code ec;
    const size_t n = parser_->http.put(asio::const_buffer(bytes.data(), bytes.size()), ec);
    *consumed += n;
    bytes.remove_prefix(n);
    if (ec == beast_http::error::need_more) break;
    if (ec) return Fail(TranslateError(ec, header_bytes_max_, bytes_max_));
    if (n == 0) break;
  }
  return Classify(bytes);
}

RequestReader::State RequestReader::Classify(std::string_view rest) {
  bool first_look = false;
  if (parser_->http.is_header_done() && !header_checked_) {
    header_checked_ = first_look = true;
    if (!CheckHeader() || !PlanBody()) return State::kError;
  }
  if (taken_bytes_ + body_bytes() > bytes_max_) {
    return Fail(TranslateError(beast_http::error::body_limit, header_bytes_max_, bytes_max_));
  }
  if (parser_->http.is_done()) return State::kDone;
  if (rest.size() > header_bytes_max_) {  // an endless chunk extension or trailer
    return Fail(TranslateError(beast_http::error::header_limit, header_bytes_max_, bytes_max_));
  }
  const bool expects = first_look && !request_.Get("Expect").empty() && !http10_;
  return expects && rest.empty() && parser_->http.get().body().empty() ? State::kContinue
                                                                       : State::kMore;
}

Request RequestReader::Seen() const {
  const Message& message = parser_->http.get();
  Request seen;
  seen.method = std::string(View(message.method_string()));
  for (const auto& field : message) {
    seen.headers.push_back(
        {std::string(View(field.name_string())), std::string(View(field.value()))});
  }
  const bool parsed = ParseTarget(View(message.target()), &seen.path, &seen.query);
  if (!parsed) seen.path.clear();
  return seen;
}

size_t RequestReader::body_bytes() const { return parser_->http.get().body().size(); }

bool RequestReader::CheckHeader() {
  const Message& message = parser_->http.get();
  const auto fail = [this](int status, std::string_view text) {
    Fail(ErrorResponse(status, text, {}, "bad_request"));
    return false;
  };
  request_ = Seen();
  keep_alive_ = message.keep_alive();
  http10_ = message.version() == 10;
  if (message.version() != 10 && message.version() != 11) {
    return fail(400, "Only HTTP/1.1 and HTTP/1.0 are served.");
  }
  if (request_.path.empty()) return fail(400, "Malformed request target.");
  const size_t hosts = message.count(beast_http::field::host);
  if (hosts > 1 || (hosts == 0 && !http10_)) return fail(400, "One Host header is required.");
  const std::string_view expect = request_.Get("Expect");
  if (!expect.empty() && !boost::beast::iequals({expect.data(), expect.size()}, "100-continue")) {
    return fail(417, "Unknown expectation.");
  }
  if (message.count(beast_http::field::transfer_encoding) > 0 &&
      (http10_ || !IsChunkedOnly(request_.Get("Transfer-Encoding")))) {
    return fail(501, "The only transfer coding served is chunked.");
  }
  return true;
}

bool RequestReader::PlanBody() {
  if (plan_) {
    BodyPlan plan = plan_(request_);
    if (plan.refusal.has_value()) {
      Fail(*std::move(plan.refusal));
      return false;
    }
    bytes_max_ = std::min(plan.bytes_max, planned_bytes_max_);
    request_.sink = std::move(plan.sink);
  }
  const auto length = parser_->http.content_length();
  if (!length.has_value() || *length <= bytes_max_) return true;
  Fail(TranslateError(beast_http::error::body_limit, header_bytes_max_, bytes_max_));
  return false;
}

std::string RequestReader::TakeBody() {
  std::string body;
  body.swap(parser_->http.get().body());
  taken_bytes_ += body.size();
  return body;
}

Request RequestReader::Take() {
  request_.body = std::move(parser_->http.get().body());
  Request request = std::move(request_);
  Reset();
  return request;
}

}  // namespace skein::services::http
