// The description of a worker and its regions, as Transport::Describe writes it and Connect reads
// it.
//
// Little-endian, no padding:
//   u32 magic "SKTR" | u16 version 2 | u16 kind | u64 incarnation | u64 grant |
//   u32 n, n bytes worker address |
//   u32 regions, per region: u64 id | u64 address | u64 bytes | u32 n, n bytes key |
//   u64 FNV-1a (64 bit) of all that precedes
// The checksum finds damage, not forgery. The parser reads nothing outside its input, allocates no
// more than a small multiple of it, and refuses what is impossible: zero or repeated ids, empty or
// wrapping regions, trailing bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/transport/transport.h"

namespace skein::engine {

enum class TransportKind : uint16_t { kLoopback = 1, kUcx = 2 };

struct DescribedRegion {
  uint64_t id = 0;
  uint64_t address = 0;  // in the described process
  uint64_t bytes = 0;
  std::string key;  // what the wire needs to reach it
  bool operator==(const DescribedRegion&) const = default;
};

struct Description {
  TransportKind kind = TransportKind::kLoopback;
  uint64_t incarnation = 0;
  GrantId grant;
  std::string worker_address;
  std::vector<DescribedRegion> regions;
  bool operator==(const Description&) const = default;
};

inline constexpr size_t kDescriptionRegionsMax = 1024;
inline constexpr size_t kWorkerAddressBytesMax = 64 << 10;
inline constexpr size_t kRegionKeyBytesMax = 4 << 10;

// REQUIRES: `description` is within the limits above.
std::string SerializeDescription(const Description& description);

// INVALID_ARGUMENT names what is wrong.
absl::StatusOr<Description> ParseDescription(std::string_view text);

// The same memory, for a writer that puts under `grant`. REQUIRES: Transport::Describe made
// `description`.
std::string DescribeUnder(const std::string& description, GrantId grant);

// Appends the checksum of `body`; for tests and the fuzzer, which want bodies past the first gate.
std::string SealDescription(std::string body);

}  // namespace skein::engine
