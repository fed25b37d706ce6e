// Philox4x32-10: a counter-based random generator. The n-th number needs no state, only key and
// counter, so any process can resume any stream at any index.
// Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11, section 3.4.
#pragma once

#include <array>
#include <cstdint>

namespace skein::engine {

using PhiloxBlock = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxBlock Philox4x32(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// Uniform in [0, 1), 53 bits: a pure function of the request's seed and the token's index.
constexpr double UniformSample(uint64_t seed, uint64_t token_index) {
  const PhiloxBlock block = Philox4x32(
      {static_cast<uint32_t>(token_index), static_cast<uint32_t>(token_index >> 32), 0, 0},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{block[1]} << 32 | block[0]) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace skein::engine
