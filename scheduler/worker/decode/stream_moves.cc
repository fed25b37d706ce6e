#include "scheduler/worker/decode/stream_moves.h"

#include <algorithm>
#include <utility>

namespace skein::scheduler {
namespace {

int64_t TokensToCome(const DecodeSequence& sequence) {
  return sequence.spec->max_tokens - static_cast<int64_t>(sequence.output->size());
}

}  // namespace

void StreamMoves::Start(TimeUs now, TimeUs end_us) {
  if (draining_ && end_us == end_us_) return;
  draining_ = true;
  end_us_ = end_us;
  window_end_us_ = end_us == kNever ? kNever : now + (end_us - now) / 2;
  next_us_ = now;
}

bool StreamMoves::MayAsk(const DecodeSequence& sequence, TimeUs now) const {
  using Phase = DecodeSequence::Phase;
  const bool runs = sequence.phase == Phase::kRunning || sequence.phase == Phase::kPreempted;
  if (!runs || sequence.stream != DecodeSequence::Stream::kAttached) return false;
  if (sequence.asked_us != kNever && now < sequence.asked_us + kAgainUs) return false;
  return TokensToCome(sequence) > kFewTokens || now >= window_end_us_;
}

void StreamMoves::TakeRoomOfAsked(const DecodeSequences& sequences, TimeUs now) {
  for (const auto& [id, sequence] : sequences.all()) {
    if (sequence.asked_us != kNever && now < sequence.asked_us + kAgainUs) {
      static_cast<void>(TakeRoomFor(sequence));
    }
  }
}

// With one token to come.
bool StreamMoves::TakeRoomFor(const DecodeSequence& sequence) {
  const int64_t blocks = sequence.KnownTokens() / block_tokens_ + 1;
  if (room_.requests < 1 || std::min(room_.blocks, room_.sequence_blocks) < blocks) return false;
  --room_.requests;
  room_.blocks -= blocks;
  return true;
}

std::vector<AskToMove> StreamMoves::Take(DecodeSequences* sequences, TimeUs now) {
  std::vector<AskToMove> asks;
  if (!draining_ || now < next_us_) return asks;
  if (std::exchange(room_is_new_, false)) TakeRoomOfAsked(*sequences, now);
  std::vector<DecodeSequence*> may;
  for (const auto& [id, sequence] : sequences->all()) {
    if (MayAsk(sequence, now)) may.push_back(&sequences->at(id));
  }
  std::stable_sort(may.begin(), may.end(), [](const DecodeSequence* a, const DecodeSequence* b) {
    return TokensToCome(*a) > TokensToCome(*b);
  });
  const bool all = now >= window_end_us_;
  for (DecodeSequence* sequence : may) {
    if (!all && !asks.empty()) break;
    if (!TakeRoomFor(*sequence)) continue;
    sequence->asked_us = now;
    asks.push_back({sequence->call});
  }
  lacks_room_ = asks.empty() && !may.empty();
  const auto left = static_cast<int64_t>(may.size() - asks.size());
  next_us_ = now + kPaceUs;
  if (left > 0 && window_end_us_ > now) {
    next_us_ = now + std::min(kPaceUs, std::max<TimeUs>((window_end_us_ - now) / left, 1));
  }
  asked_ += asks.size();
  return asks;
}

}  // namespace skein::scheduler
