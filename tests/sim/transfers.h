// Tracks the blocks and staging-buffer slots that a transfer is writing or reading. If another
// request uses one meanwhile, that is a violation ("no free during a transfer").
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "scheduler/kv/block_pool.h"
#include "tests/sim/core_process.h"

namespace skein::sim {

class Transfers {
 public:
  explicit Transfers(Verdict* verdict) : verdict_(verdict) {}

  struct Place {
    std::string endpoint;
    uint64_t generation = 0;
    int32_t block = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Owner {
    scheduler::RequestId id;
    scheduler::Epoch epoch;
    std::string writer = "";  // of a slot of a staging buffer
    auto operator<=>(const Owner&) const = default;
  };

  void Begin(const Place& place, const Owner& owner) { ++under_way_[place][owner]; }
  void End(const Place& place, const Owner& owner) {
    auto& owners = under_way_[place];
    if (--owners[owner] == 0) owners.erase(owner);
    if (owners.empty()) under_way_.erase(place);
  }

  // `owner` is about to use the block.
  void CheckUse(const Place& place, const Owner& owner, const char* what) const {
    const auto it = under_way_.find(place);
    if (it == under_way_.end()) return;
    for (const auto& [other, count] : it->second) {
      if (other == owner) continue;
      verdict_->Violated(absl::StrCat(place.endpoint, ": block ", place.block, " is ", what, " ",
                                      ToString(owner.id), " during a transfer of ",
                                      ToString(other.id)));
    }
  }
  bool Under(const Place& place) const { return under_way_.count(place) > 0; }
  size_t size() const { return under_way_.size(); }

 private:
  Verdict* verdict_;
  std::map<Place, std::map<Owner, int>> under_way_;
};

}  // namespace skein::sim
