#include "scheduler/orchestrator/requests/parked_requests.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/request.h"

namespace skein::scheduler::orchestrator {

ParkedRequests::Kind ParkedRequests::KindOf(const Request& request) {
  const auto tokens = static_cast<uint64_t>(PromptTokens(*request.spec));
  const int32_t priority = request.spec->priority;
  return {.one_instance = request.spec->want_prompt_logprobs || request.shape.instances == 1,
          .size = static_cast<int>(std::bit_width(tokens)),
          .behind = (priority < 0 ? 1 : 0) - (priority > 0 ? 1 : 0)};
}

void ParkedRequests::Add(const Request& request) {
  const std::string& model = request.spec->model;
  lines_[model][KindOf(request)].requests.emplace(request.number, request.spec->id);
  added_.push_back(request.spec->id);
  NoteRoom(model);  // it may have come since the request looked
}

void ParkedRequests::Remove(const Request& request) {
  const auto of_model = lines_.find(request.spec->model);
  if (of_model == lines_.end()) return;
  const auto line = of_model->second.find(KindOf(request));
  if (line == of_model->second.end()) return;
  line->second.requests.erase(request.number);
  if (line->second.requests.empty()) of_model->second.erase(line);
  if (of_model->second.empty()) lines_.erase(of_model);
}

std::optional<ParkedRequests::Place> ParkedRequests::Next(const std::string& model, Round* round) {
  const auto of_model = lines_.find(model);
  if (of_model == lines_.end()) return std::nullopt;
  std::optional<Place> first;
  std::pair<int, uint64_t> place = {INT_MAX, UINT64_MAX};
  for (auto& [kind, line] : of_model->second) {
    const Round::Tried& tried = round->tried[kind];
    if (tried.failed >= kTriesMax) continue;
    const bool goes_on = tried.failed >= kTriesMax / 2;
    const auto next =
        line.requests.upper_bound(goes_on ? std::max(tried.last, line.stopped_at) : tried.last);
    if (goes_on && next == line.requests.end()) line.stopped_at = 0;
    if (next == line.requests.end()) continue;
    if (std::pair(kind.behind, next->first) >= place) continue;
    place = {kind.behind, next->first};
    first = Place{next->second, kind};
  }
  if (!first.has_value()) return std::nullopt;
  Round::Tried& tried = round->tried[first->kind];
  tried.last = place.second;
  if (tried.failed >= kTriesMax / 2) of_model->second[first->kind].stopped_at = place.second;
  return first;
}

absl::Status ParkedRequests::CheckInvariants(const RequestTable& requests) const {
  int64_t parked = 0;
  for (const auto& [model, kinds] : lines_) {
    if (kinds.empty()) return absl::InternalError("ParkedRequests: an empty line was kept");
    for (const auto& [kind, line] : kinds) {
      if (line.requests.empty()) {
        return absl::InternalError("ParkedRequests: an empty line was kept");
      }
      parked += static_cast<int64_t>(line.requests.size());
      for (const auto& [number, id] : line.requests) {
        const Request* request = requests.Find(id);
        const bool stands = request != nullptr && request->state == State::kParked &&
                            request->number == number && request->spec->model == model &&
                            KindOf(*request) == kind;
        if (stands) continue;
        return absl::InternalError(
            absl::StrCat("ParkedRequests: ", ToString(id),
                         " is in a line but not parked, or in the wrong line"));
      }
    }
  }
  if (parked != requests.CountIn(State::kParked)) {
    return absl::InternalError("ParkedRequests: a parked request is in no line");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
