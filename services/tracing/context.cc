#include "services/tracing/context.h"

#include <algorithm>

namespace skein::services {
namespace {

constexpr char kDigits[] = "0123456789abcdef";
constexpr size_t kTraceparentBytes = 55;  // 00-TRACE-SPAN-FLAGS
constexpr size_t kTracestateBytesMax = 512;
constexpr size_t kTracestateMembersMax = 32;

// -1: no lower-case hexadecimal digit, which are the only ones that the header may have.
int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The value of two digits; -1: they are none.
int ByteOf(std::string_view two) {
  const int high = DigitOf(two[0]), low = DigitOf(two[1]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool IsKeyChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '*' ||
         c == '/' || c == '@';
}

bool IsMember(std::string_view member) {
  const size_t equals = member.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals > 256) return false;
  const std::string_view key = member.substr(0, equals), value = member.substr(equals + 1);
  return !value.empty() && value.size() <= 256 && std::all_of(key.begin(), key.end(), IsKeyChar) &&
         std::all_of(value.begin(), value.end(),
                     [](char c) { return c >= ' ' && c <= '~' && c != ',' && c != '='; });
}

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

std::string Hex(const TraceId& trace) {
  std::string out;
  out.reserve(2 * trace.size());
  for (const uint8_t byte : trace) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string HexOfSpan(SpanId span) {
  std::string out(16, '0');
  for (size_t i = 16; i-- > 0; span >>= 4) out[i] = kDigits[span & 15];
  return out;
}

std::optional<SpanContext> ParseTraceparent(std::string_view text) {
  if (text.size() < kTraceparentBytes) return std::nullopt;
  if (text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  const int version = ByteOf(text.substr(0, 2)), flags = ByteOf(text.substr(53, 2));
  if (version < 0 || version == 0xff || flags < 0) return std::nullopt;
  // A later version may have more behind another dash.
  const bool longer = text.size() > kTraceparentBytes;
  if (longer && (version == 0 || text[kTraceparentBytes] != '-')) return std::nullopt;
  SpanContext out{.sampled = (flags & 1) != 0};
  bool any = false;
  for (size_t i = 0; i < out.trace.size(); ++i) {
    const int byte = ByteOf(text.substr(3 + 2 * i, 2));
    if (byte < 0) return std::nullopt;
    any = any || byte > 0;
    out.trace[i] = static_cast<uint8_t>(byte);
  }
  for (size_t i = 0; i < 8; ++i) {
    const int byte = ByteOf(text.substr(36 + 2 * i, 2));
    if (byte < 0) return std::nullopt;
    out.span = out.span << 8 | static_cast<uint64_t>(byte);
  }
  if (!any || out.span == 0) return std::nullopt;
  return out;
}

std::string FormatTraceparent(const SpanContext& context) {
  return "00-" + Hex(context.trace) + "-" + HexOfSpan(context.span) +
         (context.sampled ? "-01" : "-00");
}

std::string UsableTracestate(std::string_view text) {
  if (text.size() > kTracestateBytesMax) return {};
  size_t members = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view member = Trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (member.empty()) continue;  // the grammar allows empty ones
    if (!IsMember(member) || ++members > kTracestateMembersMax) return {};
  }
  return std::string(Trimmed(text));
}

}  // namespace skein::services
