#include "scheduler/orchestrator/requests/parked_requests.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler::orchestrator {

void ParkedRequests::Add(const Request& request) {
  const std::string& model = request.spec->model;
  lines_[model].emplace(request.number, request.spec->id);
  added_.push_back(request.spec->id);
  NoteRoom(model);  // it may have come since the request looked
}

void ParkedRequests::Remove(const Request& request) {
  const auto line = lines_.find(request.spec->model);
  if (line == lines_.end()) return;
  line->second.erase(request.number);
  if (line->second.empty()) lines_.erase(line);
}

std::optional<ParkedRequests::Place> ParkedRequests::NextAfter(const std::string& model,
                                                               uint64_t last) const {
  const auto line = lines_.find(model);
  if (line == lines_.end()) return std::nullopt;
  const auto next = line->second.upper_bound(last);
  if (next == line->second.end()) return std::nullopt;
  return Place{next->first, next->second};
}

absl::Status ParkedRequests::CheckInvariants(const RequestTable& requests) const {
  int64_t parked = 0;
  for (const auto& [model, line] : lines_) {
    if (line.empty()) return absl::InternalError("ParkedRequests: an empty line was kept");
    parked += static_cast<int64_t>(line.size());
    for (const auto& [number, id] : line) {
      const Request* request = requests.Find(id);
      if (request == nullptr || request->state != State::kParked || request->number != number ||
          request->spec->model != model) {
        return absl::InternalError(
            absl::StrCat("ParkedRequests: ", ToString(id), " is in a line but not parked"));
      }
    }
  }
  if (parked != requests.CountIn(State::kParked)) {
    return absl::InternalError("ParkedRequests: a parked request is in no line");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
