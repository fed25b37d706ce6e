#include "scheduler/jobs/job_lines.h"

#include <algorithm>
#include <utility>

#include "scheduler/jobs/line_order.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler::jobs {

JobLines::JobLines(std::vector<LineInfo> lines) {
  OrderLines(&lines);
  lines_.reserve(lines.size());
  for (const LineInfo& info : lines) {
    const auto place = static_cast<uint32_t>(lines_.size());
    if (!places_.emplace(info.line, place).second) continue;
    const int64_t tokens = std::max<int64_t>(info.tokens, 1);
    lines_.push_back({info.line, tokens, State::kReady});
    ready_.insert(place);
    tokens_left_ += tokens;
  }
}

uint32_t JobLines::PlaceOf(uint64_t line) const {
  const auto it = places_.find(line);
  SKEIN_CHECK(it != places_.end());
  return it->second;
}

std::optional<JobLines::State> JobLines::StateOf(uint64_t line) const {
  const auto it = places_.find(line);
  if (it == places_.end()) return std::nullopt;
  return lines_[it->second].state;
}

std::optional<uint64_t> JobLines::Next() const {
  if (ready_.empty()) return std::nullopt;
  return lines_[*ready_.begin()].line;
}

int64_t JobLines::TokensOf(uint64_t line) const { return lines_[PlaceOf(line)].tokens; }

void JobLines::Give(uint64_t line) {
  const uint32_t place = PlaceOf(line);
  SKEIN_CHECK(lines_[place].state == State::kReady);
  lines_[place].state = State::kGiven;
  ready_.erase(place);
  ++given_;
}

void JobLines::TakeBack(uint64_t line) {
  const uint32_t place = PlaceOf(line);
  SKEIN_CHECK(lines_[place].state == State::kGiven);
  lines_[place].state = State::kReady;
  ready_.insert(place);
  --given_;
}

void JobLines::Keep(uint64_t line) {
  const uint32_t place = PlaceOf(line);
  const State before = lines_[place].state;
  SKEIN_CHECK(before == State::kReady || before == State::kGiven);
  if (before == State::kReady) {
    ready_.erase(place);
  } else {
    --given_;
  }
  lines_[place].state = State::kKeeping;
  ++keeping_;
}

void JobLines::Done(uint64_t line) {
  Line& of = lines_[PlaceOf(line)];
  SKEIN_CHECK(of.state == State::kKeeping);
  of.state = State::kDone;
  --keeping_;
  tokens_left_ -= of.tokens;
}

absl::Status JobLines::CheckInvariants() const {
  int64_t given = 0;
  int64_t keeping = 0;
  int64_t tokens = 0;
  for (uint32_t place = 0; place < lines_.size(); ++place) {
    const Line& line = lines_[place];
    given += line.state == State::kGiven ? 1 : 0;
    keeping += line.state == State::kKeeping ? 1 : 0;
    tokens += line.state == State::kDone ? 0 : line.tokens;
    if ((line.state == State::kReady) != ready_.contains(place)) {
      return absl::InternalError("JobLines: the ready lines are not those of the index");
    }
  }
  if (given != given_ || keeping != keeping_ || tokens != tokens_left_) {
    return absl::InternalError("JobLines: a count does not agree with the lines");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::jobs
