#include "scheduler/orchestrator/requests/parked_requests.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "scheduler/base/request.h"

namespace skein::scheduler::orchestrator {

ParkedRequests::Kind ParkedRequests::KindOf(const Request& request) {
  const auto tokens = static_cast<uint64_t>(PromptTokens(*request.spec));
  return {.one_instance = request.spec->want_prompt_logprobs || request.alone,
          .size = static_cast<int>(std::bit_width(tokens))};
}

void ParkedRequests::Add(const Request& request) {
  const std::string& model = request.spec->model;
  lines_[model][KindOf(request)].emplace(request.number, request.spec->id);
  added_.push_back(request.spec->id);
  NoteRoom(model);  // it may have come since the request looked
}

void ParkedRequests::Remove(const Request& request) {
  const auto of_model = lines_.find(request.spec->model);
  if (of_model == lines_.end()) return;
  const auto line = of_model->second.find(KindOf(request));
  if (line == of_model->second.end()) return;
  line->second.erase(request.number);
  if (line->second.empty()) of_model->second.erase(line);
  if (of_model->second.empty()) lines_.erase(of_model);
}

std::optional<ParkedRequests::Place> ParkedRequests::Next(const std::string& model,
                                                          Round* round) const {
  const auto of_model = lines_.find(model);
  if (of_model == lines_.end()) return std::nullopt;
  std::optional<Place> first;
  uint64_t number = UINT64_MAX;
  for (const auto& [kind, line] : of_model->second) {
    const Round::Tried& tried = round->tried[kind];
    const auto next = line.upper_bound(tried.last);
    if (tried.failed >= kTriesMax || next == line.end() || next->first >= number) continue;
    number = next->first;
    first = Place{next->second, kind};
  }
  if (first.has_value()) round->tried[first->kind].last = number;
  return first;
}

absl::Status ParkedRequests::CheckInvariants(const RequestTable& requests) const {
  int64_t parked = 0;
  for (const auto& [model, kinds] : lines_) {
    if (kinds.empty()) return absl::InternalError("ParkedRequests: an empty line was kept");
    for (const auto& [kind, line] : kinds) {
      if (line.empty()) return absl::InternalError("ParkedRequests: an empty line was kept");
      parked += static_cast<int64_t>(line.size());
      for (const auto& [number, id] : line) {
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
