// The two ways in which instances that share their weights compute the feed-forward part of a layer
// that another one of them owns (SiDP, sections 4.2 and 4.3).
#pragma once

namespace skein::scheduler {

enum class SharedMode {
  kWas,  // weights as a service: each instance reads the owner's weights ahead of its own step
  kCas,  // compute as a service: each sends its rows to the owner, which sends the results back
};

inline const char* ToString(SharedMode mode) { return mode == SharedMode::kWas ? "was" : "cas"; }

}  // namespace skein::scheduler
