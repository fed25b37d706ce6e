#include "scheduler/orchestrator/requests/parked_requests.h"

#include <algorithm>
#include <bit>
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
  Lines& lines = lines_[model];
  Line& line = lines.kinds[KindOf(request)];
  line.requests.emplace(request.number, request.spec->id);
  line.of_tenant[request.spec->tenant].insert(request.number);
  lines.turns.Add(OwnerOf(request), request.number);
  added_.push_back(request.spec->id);
  NoteRoom(model);  // it may have come since the request looked
}

void ParkedRequests::Remove(const Request& request) { Serve(request, 0); }

bool ParkedRequests::Serve(const Request& request, int64_t tokens) {
  const auto of_model = lines_.find(request.spec->model);
  if (of_model == lines_.end()) return false;
  Lines& lines = of_model->second;
  if (!lines.turns.Serve(OwnerOf(request), request.number, tokens)) return false;
  const auto line = lines.kinds.find(KindOf(request));
  line->second.requests.erase(request.number);
  const auto of_tenant = line->second.of_tenant.find(request.spec->tenant);
  of_tenant->second.erase(request.number);
  if (of_tenant->second.empty()) line->second.of_tenant.erase(of_tenant);
  if (line->second.requests.empty()) lines.kinds.erase(line);
  if (lines.kinds.empty()) lines_.erase(of_model);
  return true;
}

// The tenant's first, by submission, of those that may be tried in turn.
std::optional<ParkedRequests::Place> ParkedRequests::FirstOf(std::string_view tenant, int behind,
                                                             const Lines& lines,
                                                             const Round& round) {
  std::optional<Place> first;
  for (const auto& [kind, line] : lines.kinds) {
    const auto of_tenant = line.of_tenant.find(tenant);
    if (kind.behind != behind || of_tenant == line.of_tenant.end()) continue;
    const auto tried = round.tried.find(kind);
    if (tried != round.tried.end() && tried->second.failed >= kTriesMax / 2) continue;
    for (const uint64_t number : of_tenant->second) {
      if (first.has_value() && number >= first->number) break;
      if (tried != round.tried.end() && tried->second.numbers.count(number) > 0) continue;
      first = Place{number, line.requests.at(number), kind};
      break;
    }
  }
  return first;
}

std::optional<ParkedRequests::Place> ParkedRequests::NextInTurn(const Lines& lines,
                                                                const Round& round) {
  const bool any = std::any_of(lines.kinds.begin(), lines.kinds.end(), [&round](const auto& one) {
    const auto tried = round.tried.find(one.first);
    return tried == round.tried.end() ||
           (tried->second.failed < kTriesMax / 2 &&
            static_cast<size_t>(tried->second.failed) < one.second.requests.size());
  });
  if (!any) return std::nullopt;
  std::optional<Place> next;
  lines.turns.Choose([&](int32_t priority, std::string_view tenant) -> std::optional<uint64_t> {
    next = FirstOf(tenant, -priority, lines, round);
    return next.has_value() ? std::optional<uint64_t>(next->number) : std::nullopt;
  });
  return next;
}

// Of the kinds of which half of the tries have failed.
std::optional<ParkedRequests::Place> ParkedRequests::NextOnward(Lines& lines, const Round& round) {
  std::optional<Place> first;
  for (const auto& [kind, tried] : round.tried) {
    const auto found = lines.kinds.find(kind);
    const bool goes_on = tried.failed >= kTriesMax / 2 && tried.failed < kTriesMax;
    if (!goes_on || found == lines.kinds.end()) continue;
    Line& line = found->second;
    auto next = line.requests.upper_bound(std::max(tried.went_on_to, line.stopped_at));
    while (next != line.requests.end() && tried.numbers.count(next->first) > 0) ++next;
    if (next == line.requests.end()) {
      line.stopped_at = 0;
    } else if (!first.has_value() ||
               std::pair(kind.behind, next->first) < std::pair(first->kind.behind, first->number)) {
      first = Place{next->first, next->second, kind};
    }
  }
  return first;
}

std::optional<ParkedRequests::Place> ParkedRequests::Next(const std::string& model, Round* round) {
  const auto of_model = lines_.find(model);
  if (of_model == lines_.end()) return std::nullopt;
  Lines& lines = of_model->second;
  std::optional<Place> next = NextInTurn(lines, *round);
  const std::optional<Place> onward = NextOnward(lines, *round);
  const bool goes_on =
      onward.has_value() && (!next.has_value() || std::pair(onward->kind.behind, onward->number) <
                                                      std::pair(next->kind.behind, next->number));
  if (goes_on) next = onward;
  if (!next.has_value()) return std::nullopt;
  Round::Tried& tried = round->tried[next->kind];
  tried.numbers.insert(next->number);
  next->onward = goes_on;
  if (goes_on) tried.went_on_to = next->number;
  return next;
}

void ParkedRequests::NoteFailed(const std::string& model, const Place& place, Round* round) {
  ++round->tried[place.kind].failed;
  if (place.onward) lines_.at(model).kinds.at(place.kind).stopped_at = place.number;
}

absl::Status ParkedRequests::CheckInvariants(const RequestTable& requests) const {
  int64_t parked = 0;
  for (const auto& [model, lines] : lines_) {
    if (lines.kinds.empty()) return absl::InternalError("ParkedRequests: an empty line was kept");
    if (absl::Status status = lines.turns.CheckInvariants(); !status.ok()) return status;
    size_t of_model = 0;
    for (const auto& [kind, line] : lines.kinds) {
      size_t of_tenants = 0;
      for (const auto& [tenant, numbers] : line.of_tenant) of_tenants += numbers.size();
      if (line.requests.empty() || of_tenants != line.requests.size()) {
        return absl::InternalError(
            "ParkedRequests: an empty line was kept, or its tenants are miscounted");
      }
      of_model += of_tenants;
      parked += static_cast<int64_t>(line.requests.size());
      for (const auto& [number, id] : line.requests) {
        const Request* request = requests.Find(id);
        const bool parks = request != nullptr && request->state == State::kParked &&
                           request->number == number && request->spec->model == model &&
                           KindOf(*request) == kind;
        if (parks && lines.turns.Has(OwnerOf(*request), number)) {
          const auto of_tenant = line.of_tenant.find(request->spec->tenant);
          if (of_tenant != line.of_tenant.end() && of_tenant->second.count(number) > 0) continue;
        }
        return absl::InternalError(
            absl::StrCat("ParkedRequests: ", ToString(id),
                         " is in a line but not parked, or in the wrong line"));
      }
    }
    if (of_model != lines.turns.size()) {
      return absl::InternalError("ParkedRequests: one that is not parked waits for its turn");
    }
  }
  if (parked != requests.CountIn(State::kParked)) {
    return absl::InternalError("ParkedRequests: a parked request is in no line");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
