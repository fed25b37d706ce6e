#include "services/http/message.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace skein::services::http {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool SameIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return Lower(x) == Lower(y); });
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = Lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool PercentDecode(std::string_view in, std::string* out) {
  out->clear();
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] != '%') {
      out->push_back(in[i]);
      continue;
    }
    if (i + 2 >= in.size()) return false;
    const int high = HexDigit(in[i + 1]), low = HexDigit(in[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
    out->push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return true;
}

bool SafeValue(std::string_view value) {
  return value.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

}  // namespace

std::string_view FindHeader(const std::vector<Header>& headers, std::string_view name) {
  for (const Header& header : headers) {
    if (SameIgnoringCase(header.name, name)) return header.value;
  }
  return {};
}

bool IsMediaType(std::string_view content_type, std::string_view type) {
  content_type = content_type.substr(0, content_type.find(';'));
  while (!content_type.empty() && (content_type.back() == ' ' || content_type.back() == '\t')) {
    content_type.remove_suffix(1);
  }
  return SameIgnoringCase(content_type, type);
}

std::string_view Reason(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 302:
      return "Found";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Entity";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

std::string HttpDate(int64_t unix_seconds) {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const time_t seconds = unix_seconds;
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[48];  // not strftime: its names follow the locale
  std::snprintf(text, sizeof(text), "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[parts.tm_wday],
                parts.tm_mday, kMonths[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour,
                parts.tm_min, parts.tm_sec);
  return text;
}

std::string SerializeHead(const Response& response, Framing framing, bool keep_alive,
                          int64_t unix_seconds) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head.append(Reason(response.status)).append("\r\n");
  const auto add = [&head](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (!response.content_type.empty()) add("Content-Type", response.content_type);
  if (framing == Framing::kLength && response.status != 204) {
    add("Content-Length", std::to_string(response.body.size()));
  }
  if (framing == Framing::kChunked) add("Transfer-Encoding", "chunked");
  for (const Header& header : response.headers) {
    if (SafeValue(header.name) && SafeValue(header.value)) add(header.name, header.value);
  }
  add("Date", HttpDate(unix_seconds));
  add("Connection", keep_alive ? "keep-alive" : "close");
  head.append("\r\n");
  return head;
}

bool ParseTarget(std::string_view target, std::string* path, std::string* query) {
  for (std::string_view scheme : {"http://", "https://"}) {
    if (target.substr(0, scheme.size()) != scheme) continue;
    const size_t slash = target.find('/', scheme.size());
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  if (target.empty() || (target[0] != '/' && target != "*")) return false;
  if (target.find('#') != std::string_view::npos) return false;
  const size_t mark = target.find('?');
  query->clear();
  if (mark != std::string_view::npos) *query = std::string(target.substr(mark + 1));
  return PercentDecode(target.substr(0, mark), path);
}

bool ParseQuery(std::string_view query, std::vector<std::pair<std::string, std::string>>* fields) {
  fields->clear();
  const auto decode = [](std::string_view text, std::string* out) {
    std::string spaced(text);
    std::replace(spaced.begin(), spaced.end(), '+', ' ');
    return PercentDecode(spaced, out);
  };
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), field.size() + 1));
    if (field.empty()) continue;
    const size_t equals = std::min(field.find('='), field.size());
    auto& [name, value] = fields->emplace_back();
    if (!decode(field.substr(0, equals), &name)) return false;
    if (!decode(field.substr(std::min(field.size(), equals + 1)), &value)) return false;
  }
  return true;
}

}  // namespace skein::services::http
