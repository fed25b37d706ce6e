// The simulator's clock, its randomness and its log. Everything that happens is an action at a
// virtual time; ties go by the order of scheduling, so a seed fixes the whole run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <queue>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/base/time.h"

namespace skein::sim {

using scheduler::TimeUs;

class VirtualTime {
 public:
  TimeUs now() const { return now_; }
  uint64_t actions() const { return actions_; }
  bool idle() const { return queue_.empty(); }

  void At(TimeUs when, std::function<void()> action) {
    queue_.push({when < now_ ? now_ : when, ++scheduled_, std::move(action)});
  }
  void RunOne() {
    Entry entry = std::move(const_cast<Entry&>(queue_.top()));
    queue_.pop();
    now_ = entry.when;
    ++actions_;
    entry.action();
  }

 private:
  struct Entry {
    TimeUs when = 0;
    uint64_t number = 0;
    std::function<void()> action;
    bool operator<(const Entry& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  std::priority_queue<Entry> queue_;
  TimeUs now_ = 0;
  uint64_t scheduled_ = 0;
  uint64_t actions_ = 0;
};

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  int64_t Between(int64_t low, int64_t high) {  // both included
    return low + static_cast<int64_t>(bits_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double probability) {
    return static_cast<double>(bits_() >> 11) * 0x1p-53 < probability;
  }

 private:
  std::mt19937_64 bits_;
};

// FNV-1a over everything that was noted; also prints it when asked.
class Trace {
 public:
  explicit Trace(bool print) : print_(print) {}

  void Note(TimeUs when, std::string_view who, std::string_view what, uint64_t about) {
    Add(static_cast<uint64_t>(when));
    for (char c : who) Add(static_cast<uint8_t>(c));
    for (char c : what) Add(static_cast<uint8_t>(c));
    Add(about);
    if (!print_) return;
    std::fprintf(stderr, "%10lld %-10.*s %-22.*s %llu\n", static_cast<long long>(when),
                 static_cast<int>(who.size()), who.data(), static_cast<int>(what.size()),
                 what.data(), static_cast<unsigned long long>(about));
  }
  uint64_t hash() const { return hash_; }
  bool print() const { return print_; }

 private:
  void Add(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3u; }

  bool print_;
  uint64_t hash_ = 0xcbf29ce484222325u;
};

// "AssignCalled" for skein::scheduler::AssignCalled, "OpenTransferReply" for
// Replied<OpenTransferReply>.
template <class T>
constexpr std::string_view TypeName() {
  std::string_view name = __PRETTY_FUNCTION__;
  name = name.substr(name.find("T = ") + 4);
  name = name.substr(0, name.find_first_of(";]>"));
  const size_t colon = name.rfind(':');
  return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

}  // namespace skein::sim
