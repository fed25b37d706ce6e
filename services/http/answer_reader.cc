#include "services/http/answer_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

namespace skein::services::http {

namespace beast_http = boost::beast::http;

struct AnswerReader::Parser {
  beast_http::response_parser<beast_http::string_body> http;
};

namespace {

constexpr std::string_view kVersion = "HTTP/1.";

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

AnswerReader::AnswerReader(std::string_view method) : of_head_(method == "HEAD") { Reset(); }

AnswerReader::~AnswerReader() = default;

void AnswerReader::Reset() {
  parser_ = std::make_unique<Parser>();
  parser_->http.header_limit(kLineBytesMax);
  parser_->http.body_limit(kBytesMax);
  parser_->http.eager(true);
  parser_->http.skip(of_head_);
}

AnswerReader::State AnswerReader::Take(std::string_view bytes) {
  held_.append(bytes);
  if (!BeginsAsHttp()) return Break(beast_http::error::bad_version);
  size_t at = 0;
  State state = State::kMore;
  while (state == State::kMore && at < held_.size()) {
    boost::beast::error_code ec;
    const size_t read = parser_->http.put({held_.data() + at, held_.size() - at}, ec);
    at += read;
    if (ec == beast_http::error::need_more) break;
    if (ec) return Break(ec);
    state = Classify();
    if (read == 0) break;
  }
  held_.erase(0, at);
  // Each look at what frames chunks begins at its beginning, so it must not grow for long.
  return state == State::kMore && held_.size() > kLineBytesMax
             ? Break(beast_http::error::header_limit)
             : state;
}

AnswerReader::State AnswerReader::TakeEnd() {
  boost::beast::error_code ec = beast_http::error::partial_message;
  if (parser_->http.got_some()) parser_->http.put_eof(ec);
  return ec ? Break(ec) : State::kWhole;
}

// Beast says nothing of a head before its end, which a server that speaks another protocol never
// sends.
bool AnswerReader::BeginsAsHttp() const {
  const size_t size = std::min(held_.size(), kVersion.size());
  return parser_->http.is_header_done() || held_.compare(0, size, kVersion.substr(0, size)) == 0;
}

// Answers of status 1xx come before the one that counts.
AnswerReader::State AnswerReader::Classify() {
  if (!parser_->http.is_header_done()) return State::kMore;
  const unsigned status = parser_->http.get().result_int();
  if (status < 100) return Break(beast_http::error::bad_status);
  if (!parser_->http.is_done()) return State::kMore;
  if (status >= 200 || status == 101) return State::kWhole;
  Reset();
  return State::kMore;
}

Response AnswerReader::TakeResponse() {
  auto message = parser_->http.release();
  Response response;
  response.status = static_cast<int>(message.result_int());
  for (const auto& field : message) {
    response.headers.push_back(
        {std::string(View(field.name_string())), std::string(View(field.value()))});
  }
  response.body = std::move(message.body());
  return response;
}

AnswerReader::State AnswerReader::Break(boost::beast::error_code why) {
  if (why == beast_http::error::body_limit) {
    problem_ = "the answer exceeds 16 MiB";
  } else if (why == beast_http::error::header_limit) {
    problem_ = "the answer's head exceeds 64 KiB";
  } else if (why == beast_http::error::partial_message) {
    problem_ = "the answer is incomplete";
  } else {
    problem_ = "the answer is not HTTP: " + why.message();
  }
  return State::kBroken;
}

}  // namespace skein::services::http
