// Tracks the blocks and staging-buffer slots that a transfer is writing or reading. If another
// request uses one meanwhile, that is a violation ("no free during a transfer"). And the grants of
// the simulated transports (engine/transport/transport.h): a put that travels as messages is
// dropped when its grant is closed; one whose source writes by itself is waited for, until its
// source has gone on or died.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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

  // What a decode process gave.
  struct Grant {
    std::string endpoint;
    uint64_t generation = 0;
    uint64_t number = 0;
    auto operator<=>(const Grant&) const = default;
  };
  struct Put {
    Grant grant;
    std::string source;
    uint64_t source_generation = 0;
    bool by_itself = false;
    Owner reader;  // of `from`
    Owner writer;  // of `to`
    std::vector<Place> from;
    std::vector<Place> to;
  };

  void Open(const Grant& grant) { open_.insert(grant); }
  // Grants of the process at the endpoint: handoffs that are on their way to it.
  int64_t OpenAt(const std::string& endpoint) const {
    return std::count_if(open_.begin(), open_.end(),
                         [&](const Grant& grant) { return grant.endpoint == endpoint; });
  }
  bool IsOpen(const Grant& grant) const { return open_.count(grant) > 0; }
  // `closed` is called when no put under the grant changes anything any more.
  void Close(const Grant& grant, std::function<void()> closed) {
    open_.erase(grant);
    for (auto& [number, put] : puts_) {
      if (put.grant == grant && !put.by_itself) Drop(&put);
    }
    closing_[grant] = std::move(closed);
    MaybeClosed(grant);
  }
  // REQUIRES: IsOpen(put.grant).
  uint64_t BeginPut(Put put) {
    for (const Place& place : put.from) Begin(place, put.reader);
    for (const Place& place : put.to) Begin(place, put.writer);
    puts_.emplace(++last_put_, std::move(put));
    return last_put_;
  }
  // Whether its bytes still arrive.
  bool Arrives(uint64_t put) const {
    const auto it = puts_.find(put);
    return it != puts_.end() && !it->second.to.empty();
  }
  void EndPut(uint64_t number) {
    const auto it = puts_.find(number);
    if (it == puts_.end()) return;
    Put put = std::move(it->second);
    puts_.erase(it);
    Drop(&put);
    for (const Place& place : put.from) End(place, put.reader);
    MaybeClosed(put.grant);
  }
  // A process's own writes end with it.
  void Died(const std::string& endpoint, uint64_t generation) {
    std::vector<uint64_t> ended;
    for (const auto& [number, put] : puts_) {
      const bool its = put.source == endpoint && put.source_generation == generation;
      if (its && put.by_itself) ended.push_back(number);
    }
    for (const uint64_t put : ended) EndPut(put);
  }

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
  void Drop(Put* put) {
    for (const Place& place : std::exchange(put->to, {})) End(place, put->writer);
  }
  void MaybeClosed(const Grant& grant) {
    for (const auto& [number, put] : puts_) {
      if (put.grant == grant && put.by_itself) return;
    }
    const auto closing = closing_.extract(grant);
    if (!closing.empty()) closing.mapped()();
  }

  Verdict* verdict_;
  std::set<Grant> open_;
  std::map<Grant, std::function<void()>> closing_;
  std::map<uint64_t, Put> puts_;
  uint64_t last_put_ = 0;
  std::map<Place, std::map<Owner, int>> under_way_;
};

}  // namespace skein::sim
