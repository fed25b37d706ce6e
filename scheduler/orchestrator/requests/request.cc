#include "scheduler/orchestrator/requests/request.h"

#include <algorithm>

namespace skein::scheduler::orchestrator {

bool Request::RanToItsEnd() const {
  using How = RouterEnd::How;
  const bool all_tokens = router_end.has_value() && (router_end->how == How::kStopToken ||
                                                     router_end->how == How::kMaxTokens);
  return all_tokens && state == State::kPlaced && replans == 0 && old_decodes.empty();
}

Member* Request::MemberAt(InstanceId instance) {
  for (Member& member : members) {
    if (member.instance == instance && member.here()) return &member;
  }
  return nullptr;
}

bool Request::HasMembersHere() const {
  return std::any_of(members.begin(), members.end(), [](const Member& m) { return m.here(); });
}

bool Request::AllAccepted() const {
  return std::all_of(members.begin(), members.end(),
                     [](const Member& m) { return m.accepted() || !m.here(); });
}

size_t Request::NextChunkOf(const Member& member) const {
  const auto rank = static_cast<size_t>(&member - members.data());
  size_t chunk = member.chunks_done;
  while (chunk < chunks.size() && chunks[chunk].members <= rank) ++chunk;
  return chunk;
}

bool Request::MayHaveBegun() const {
  if (state == State::kPlaced) return true;
  if (sequence_parallel || members.empty()) return false;
  const bool asked = asking.has_value() || state == State::kWaiting || state == State::kReserving;
  return asked || members[0].chunks_done > 0;
}

bool Request::MayCompute(const Member& member) const {
  if (!MayHaveBegun() || !member.here()) return false;
  const size_t next = NextChunkOf(member);
  if (next >= chunks.size()) return false;  // it hands over what it has computed
  return next == member.chunks_done || member.entered_us >= 0 || HasEnded(next - 1);
}

bool Request::HasEnded(size_t chunk) const {
  for (size_t i = 0; i < chunks[chunk].members; ++i) {
    if (members[i].here() && members[i].chunks_done <= chunk) return false;
  }
  return true;
}

Request::Entered Request::EnteredOf(size_t chunk) const {
  Entered result{.all = true};
  for (size_t i = 0; i < chunks[chunk].members; ++i) {
    const bool entered = members[i].entered_us >= 0 && NextChunkOf(members[i]) == chunk;
    if (entered) result.last_us = std::max(result.last_us, members[i].entered_us);
    result.all = result.all && entered;
  }
  return result;
}

}  // namespace skein::scheduler::orchestrator
