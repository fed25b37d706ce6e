// Messages for groups that this process has not made yet, or has left. Internal to engine/comm.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/comm/ucx/wire_message.h"

namespace skein::engine {

// Its size is bounded. A group whose messages no longer fit, or that was not made while messages of
// many other groups arrived, is forgotten or kept as broken; its calls then end by an abort or at
// their deadlines.
class EarlyGroups {
 public:
  struct Message {
    WireHeader header;
    std::vector<std::byte> data;
  };

  explicit EarlyGroups(size_t bytes_max = 64 << 20) : bytes_max_(bytes_max) {}

  void Keep(const WireHeader& header, std::span<const std::byte> data);

  // The messages that were kept for a group, which is being made now.
  std::vector<Message> Take(const GroupDigest& key);

  // The group was left: later messages for it are dropped.
  void Close(const GroupDigest& key);
  bool Closed(const GroupDigest& key) const { return closed_.contains(key); }

 private:
  struct Group {
    std::vector<Message> messages;
    size_t bytes = 0;     // of the messages, themselves included
    bool broken = false;  // the one message left says so
  };

  void Forget(const GroupDigest& key);

  const size_t bytes_max_;
  std::map<GroupDigest, Group> groups_;
  std::deque<GroupDigest> order_;  // of groups_, oldest first
  size_t bytes_ = 0;
  std::set<GroupDigest> closed_;
  std::deque<GroupDigest> closed_order_;
};

}  // namespace skein::engine
