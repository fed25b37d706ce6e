#include "services/http/error.h"

#include <cstdint>

namespace skein::services::http {
namespace {

// Bytes of the well-formed UTF-8 sequence at the start of `text`; 0: none (RFC 3629).
size_t SequenceBytes(std::string_view text) {
  const auto at = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  if (lead == 0xE0 && at(1) < 0xA0) return 0;
  if (lead == 0xED && at(1) > 0x9F) return 0;
  if (lead == 0xF0 && at(1) < 0x90) return 0;
  if (lead == 0xF4 && at(1) > 0x8F) return 0;
  return size;
}

void AppendAscii(char c, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"':
      out->append("\\\"");
      return;
    case '\\':
      out->append("\\\\");
      return;
    case '\n':
      out->append("\\n");
      return;
    case '\r':
      out->append("\\r");
      return;
    case '\t':
      out->append("\\t");
      return;
    default:
      break;
  }
  if (static_cast<uint8_t>(c) >= 0x20 && c != 0x7F) return out->push_back(c);
  out->append("\\u00");
  out->push_back(kHex[c >> 4]);
  out->push_back(kHex[c & 15]);
}

std::string StringOrNull(std::string_view text) { return text.empty() ? "null" : JsonString(text); }

}  // namespace

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  while (!text.empty()) {
    const size_t size = SequenceBytes(text);
    if (size == 1) {
      AppendAscii(text[0], &out);
    } else if (size == 0) {
      out.append("\xEF\xBF\xBD");
    } else {
      out.append(text.substr(0, size));
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  out.push_back('"');
  return out;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = SequenceBytes(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string_view ErrorType(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

std::string ErrorBody(int status, std::string_view message, std::string_view param,
                      std::string_view code) {
  return "{\"error\":{\"message\":" + JsonString(message) +
         ",\"type\":" + JsonString(ErrorType(status)) + ",\"param\":" + StringOrNull(param) +
         ",\"code\":" + StringOrNull(code) + "}}";
}

Response ErrorResponse(int status, std::string_view message, std::string_view param,
                       std::string_view code) {
  Response response;
  response.status = status;
  response.body = ErrorBody(status, message, param, code);
  response.error = std::string(message);
  response.error_param = std::string(param);
  response.error_code = std::string(code);
  return response;
}

}  // namespace skein::services::http
