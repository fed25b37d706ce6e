// GuessGuard: slows down clients that try keys. An address that has sent kFreeTries wrong keys is
// held off after each further one, for twice as long each time, up to kHoldMaxUs. Meanwhile its
// keys are not even looked at, except those that were right from this address before: behind a
// gateway or a translated address, others go on. It is forgotten kForgetUs after its last wrong
// key.
//
// Addresses are remembered up to a number, so a flood from many of them takes no further memory:
// the one whose last wrong key is the oldest is forgotten then.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "scheduler/base/time.h"

namespace skein::scheduler::tenants {

// Pure; one thread at a time. Addresses and keys are opaque; keys are their digests.
class GuessGuard {
 public:
  static constexpr int kFreeTries = 10;
  static constexpr TimeUs kHoldUs = 1'000'000;
  static constexpr TimeUs kHoldMaxUs = 60'000'000;
  static constexpr TimeUs kForgetUs = 600'000'000;
  static constexpr size_t kAddressesMax = 10'000;
  static constexpr size_t kPairsMax = 20'000;

  // How long this key from this address is not to be looked at; 0: look.
  TimeUs HeldFor(const std::string& address, const std::string& key, TimeUs now) const {
    const auto it = addresses_.find(address);
    if (it == addresses_.end() || now >= it->second.held_until) return 0;
    return right_.contains({address, key}) ? 0 : it->second.held_until - now;
  }

  void Wrong(const std::string& address, TimeUs now) {
    Address& known = addresses_[address];
    by_time_.erase({known.last, address});
    if (known.wrong > 0 && now - known.last >= kForgetUs) known = {};
    known.last = now;
    by_time_.insert({now, address});
    known.wrong = std::min(known.wrong + 1, 1'000'000);
    if (known.wrong > kFreeTries) {
      const int doublings = std::min(known.wrong - kFreeTries - 1, 20);
      known.held_until = now + std::min(kHoldUs << doublings, kHoldMaxUs);
    }
    while (addresses_.size() > kAddressesMax) {
      addresses_.erase(by_time_.begin()->second);
      by_time_.erase(by_time_.begin());
    }
  }

  // It was right.
  void Right(const std::string& address, const std::string& key) {
    if (right_.contains({address, key})) return;
    if (right_.size() >= kPairsMax) right_.clear();
    right_.emplace(address, key);
  }

  size_t addresses() const { return addresses_.size(); }
  size_t pairs() const { return right_.size(); }

 private:
  struct Address {
    int wrong = 0;
    TimeUs last = 0;
    TimeUs held_until = 0;
  };

  std::map<std::string, Address> addresses_;
  std::set<std::pair<TimeUs, std::string>> by_time_;  // of addresses_, by their last wrong key
  std::set<std::pair<std::string, std::string>> right_;
};

}  // namespace skein::scheduler::tenants
