#include "services/router/identity.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <string_view>

namespace skein::services {
namespace {

bool IsLowerHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool AllZero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

}  // namespace

uint64_t RandomBits() {
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return generator();
}

std::string RandomHex() {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(RandomBits()),
                static_cast<unsigned long long>(RandomBits()));
  return text;
}

std::string RequestIdOf(const http::Request& request) {
  const std::string_view given = request.Get("X-Request-Id");
  const bool usable =
      !given.empty() && given.size() <= 128 &&
      std::all_of(given.begin(), given.end(), [](char c) { return c > 32 && c < 127; });
  return usable ? std::string(given) : "req-" + RandomHex();
}

std::string TraceparentOf(const http::Request& request) {
  const std::string_view text = request.Get("traceparent");
  const bool framed =
      text.size() == 55 && text.substr(0, 3) == "00-" && text[35] == '-' && text[52] == '-';
  if (!framed) return {};
  const std::string_view trace = text.substr(3, 32), span = text.substr(36, 16),
                         flags = text.substr(53);
  const bool valid = IsLowerHex(trace) && IsLowerHex(span) && IsLowerHex(flags) &&
                     !AllZero(trace) && !AllZero(span);
  return valid ? std::string(text) : std::string();
}

}  // namespace skein::services
