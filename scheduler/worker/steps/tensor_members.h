// The tensor groups of a chunk that its members run as (members / tp, tp): each tp neighbours by
// rank compute the dense part of all their tokens together.
#pragma once

#include <string>
#include <vector>

namespace skein::scheduler {

// Of `comm_addresses`, the chunk's members by rank, those of the tensor group that `rank` is in;
// `rank` % tp is its rank there. REQUIRES: tp divides their number.
inline std::vector<std::string> TensorMembers(const std::vector<std::string>& comm_addresses,
                                              int rank, int tp) {
  const auto first = comm_addresses.begin() + rank / tp * tp;
  return {first, first + tp};
}

}  // namespace skein::scheduler
