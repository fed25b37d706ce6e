// Two read-mostly hash tables with open addressing, built once at load and then shared by all
// threads.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace skein::engine {

// From an ordered pair of token ids to 64 bits.
class PairTable {
 public:
  explicit PairTable(size_t entries_max = 0) : slots_(std::bit_ceil(entries_max * 2 + 2)) {}

  // The later of two entries with the same pair wins. REQUIRES: at most entries_max pairs; ids >=
  // 0.
  void Put(int32_t left, int32_t right, uint64_t value) {
    Slot& slot = slots_[IndexOf(Key(left, right))];
    slot = {Key(left, right), value};
  }

  // The value's address, nullptr for none.
  const uint64_t* Find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[IndexOf(Key(left, right))];
    return slot.key == kFree ? nullptr : &slot.value;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    uint64_t value = 0;
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  size_t IndexOf(uint64_t key) const {
    uint64_t hash = key * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
    size_t index = hash & (slots_.size() - 1);
    while (slots_[index].key != kFree && slots_[index].key != key)
      index = (index + 1) & (slots_.size() - 1);
    return index;
  }

  std::vector<Slot> slots_;
};

// From strings, kept by the caller, to ids.
class StringTable {
 public:
  explicit StringTable(size_t entries_max = 0) : slots_(std::bit_ceil(entries_max * 2 + 2)) {}

  // False, and nothing changed, if the string is there already. REQUIRES: at most entries_max
  // strings; they outlive the table; id >= 0.
  bool Insert(std::string_view s, int32_t id) {
    const size_t hash = std::hash<std::string_view>()(s);
    Slot& slot = slots_[IndexOf(s, hash)];
    if (slot.id >= 0) return false;
    slot = {s, static_cast<uint32_t>(hash), id};
    return true;
  }

  // -1 for none.
  int32_t Find(std::string_view s) const {
    return slots_[IndexOf(s, std::hash<std::string_view>()(s))].id;
  }

 private:
  struct Slot {
    std::string_view text;
    uint32_t hash = 0;
    int32_t id = -1;
  };

  size_t IndexOf(std::string_view s, size_t hash) const {
    size_t index = hash & (slots_.size() - 1);
    while (slots_[index].id >= 0 &&
           (slots_[index].hash != static_cast<uint32_t>(hash) || slots_[index].text != s))
      index = (index + 1) & (slots_.size() - 1);
    return index;
  }

  std::vector<Slot> slots_;
};

}  // namespace skein::engine
