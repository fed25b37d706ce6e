#include "services/base/random_bits.h"

#include <cstdio>
#include <random>

namespace skein::services {

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

}  // namespace skein::services
