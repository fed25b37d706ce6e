#include "scheduler/router/token_stream_client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {

void TokenStreamClient::Attach(RequestId id, Epoch epoch, const Source& source,
                               std::string traceparent, bool paused, TimeUs now) {
  if (const auto it = attached_.find(id); it != attached_.end()) Detach(id, it->second.epoch);
  std::erase_if(unreached_, [id](const Lost& lost) { return lost.id == id; });
  Link& link = LinkTo(source.endpoint, now);
  if (!Reaches(link, source.place, now)) {
    unreached_.push_back({id, epoch, /*unreached=*/true});
    unreached_us_ = std::min(unreached_us_, now);
    return;
  }
  link.requests.insert(id);
  Attached& attached = attached_[id];
  attached = {.epoch = epoch,
              .link = &link,
              .place = source.place,
              .traceparent = std::move(traceparent),
              .ahead = source.ahead,
              .paused = paused};
  heard_.Attach(source.place, source.endpoint);
  // It would be applied after the attach. What it acknowledges is forgotten with that, too.
  std::erase_if(link.unsent.detach, [id, epoch](const DetachTokens& one) {
    return one.id == id && one.epoch == epoch;
  });
  link.unsent.attach.push_back(AttachOf(id, attached));
  if (link.stream != TokenStreamId{}) return MarkReady(link);
  waiting_.Set(source.endpoint, link.open_us);
  OpenDue(now);
}

// Whether a request may be attached there now.
bool TokenStreamClient::Reaches(Link& link, const DecodePlace& place, TimeUs now) {
  if (reattach_wait_us_ == 0) return true;
  const bool another = std::exchange(link.tried, place.instance) != place.instance;
  if (another && link.stream == TokenStreamId{} && link.requests.empty()) {
    link.breaker.Succeeded();
    link.open_us = now;
  }
  // The request with which a stream was tried has gone without an answer: this one takes its place.
  if (link.stream != TokenStreamId{} && link.requests.empty()) return true;
  return link.breaker.Allows(now);
}

// What was in transit on a stream before is not, any more.
AttachTokens TokenStreamClient::AttachOf(RequestId id, Attached& attached) const {
  attached.owed = attached.paused ? credit_ : 0;
  AttachTokens attach{.id = id,
                      .epoch = attached.epoch,
                      .credit = credit_ - attached.owed,
                      .traceparent = attached.traceparent,
                      .ahead = attached.ahead,
                      .decode = attached.place.instance};
  if (reattach_wait_us_ > 0) attach.from_index = attached.received;
  return attach;
}

bool TokenStreamClient::AttachAgain(RequestId id, Attached& attached) {
  if (++attached.breaks > kBreaksMax) return false;
  attached.again = true;
  attached.ahead = false;  // what the worker does not know by now is not waited for
  attached.link->unsent.attach.push_back(AttachOf(id, attached));
  return true;
}

// Endpoints without a stream are remembered for their back-off only, until that is over.
TokenStreamClient::Link& TokenStreamClient::LinkTo(const std::string& endpoint, TimeUs now) {
  const auto it = links_.find(endpoint);
  if (it != links_.end()) return it->second;
  std::erase_if(links_, [now](const auto& entry) {
    const Link& link = entry.second;
    return link.stream == TokenStreamId{} && link.requests.empty() &&
           now >= link.open_us + kBackoffMaxUs;
  });
  Link& link = links_[endpoint];
  link.endpoint = endpoint;
  return link;
}

std::vector<TokenStreamClient::Lost> TokenStreamClient::Tick(TimeUs now) {
  heard_.Tick(now);
  OpenDue(now);
  unreached_us_ = kNever;
  std::vector<Lost> lost = std::exchange(unreached_, {});
  while (const auto endpoint = answers_due_.TakeDue(now)) {
    for (const RequestId id : links_.at(*endpoint).requests) {
      const Attached& attached = attached_.at(id);
      if (attached.again) lost.push_back({id, attached.epoch});
    }
  }
  // The worker may get the attach late. Of those that were not reached nothing is known here.
  for (const Lost& one : lost) Detach(one.id, one.epoch);
  return lost;
}

void TokenStreamClient::OpenDue(TimeUs now) {
  while (const auto endpoint = waiting_.TakeDue(now)) OpenStream(links_.at(*endpoint));
}

void TokenStreamClient::OpenStream(Link& link) {
  link.stream = {++last_stream_};
  link.received = false;
  streams_[link.stream] = &link;
  opens_.push_back({link.stream, link.endpoint});
  MarkReady(link);
}

TimeUs TokenStreamClient::NextDeadline() const {
  return std::min({waiting_.Next(), answers_due_.Next(), heard_.NextDeadline(), unreached_us_});
}

void TokenStreamClient::MarkReady(const Link& link) {
  if (link.stream != TokenStreamId{}) ready_.insert(link.stream);
}

void TokenStreamClient::Detach(RequestId id, Epoch epoch) {
  std::erase_if(unreached_,
                [id, epoch](const Lost& lost) { return lost.id == id && lost.epoch == epoch; });
  const auto it = attached_.find(id);
  if (it == attached_.end() || it->second.epoch != epoch) return;
  Link& link = *it->second.link;
  Forget(it);
  if (link.stream != TokenStreamId{}) {
    link.unsent.detach.push_back({id, epoch});
    return MarkReady(link);
  }
  // Nothing of it was sent. Requests that wait for a stream are few.
  std::erase_if(link.unsent.attach, [id](const AttachTokens& attach) { return attach.id == id; });
  std::erase_if(link.unsent.credit, [id](const CreditTokens& credit) { return credit.id == id; });
  if (link.requests.empty()) waiting_.Remove(link.endpoint);
}

void TokenStreamClient::DetachAll() {
  while (!attached_.empty()) Detach(attached_.begin()->first, attached_.begin()->second.epoch);
}

void TokenStreamClient::Forget(std::map<RequestId, Attached>::iterator it) {
  heard_.Detach(it->second.place);
  it->second.link->requests.erase(it->first);
  attached_.erase(it);
}

void TokenStreamClient::SetPaused(RequestId id, bool paused) {
  const auto it = attached_.find(id);
  if (it == attached_.end()) return;
  it->second.paused = paused;
  Grant(id, it->second, 1);
}

void TokenStreamClient::Grant(RequestId id, Attached& attached, int64_t at_least) {
  if (attached.paused || attached.owed < at_least) return;
  Link& link = *attached.link;
  link.unsent.credit.push_back(
      {id, attached.epoch, std::exchange(attached.owed, 0), attached.received});
  MarkReady(link);
}

void TokenStreamClient::Received(TokenStreamId stream, TimeUs now) {
  const auto from = streams_.find(stream);
  if (from == streams_.end()) return;
  from->second->received = true;
  from->second->breaker.Succeeded();
  answers_due_.Remove(from->second->endpoint);
  heard_.Received(from->second->endpoint, now);
}

TokenStreamClient::Part TokenStreamClient::Receive(TokenStreamId stream,
                                                   const SequenceTokens& tokens) {
  const auto from = streams_.find(stream);
  if (from == streams_.end()) return {};
  const auto it = attached_.find(tokens.id);
  if (it == attached_.end()) return {};
  Attached& attached = it->second;
  const bool stale = attached.epoch != tokens.epoch;
  if (stale && !SKEIN_PLANT(token_epoch_ignored)) return {};
  if (attached.link != from->second) return {};
  Part part{.attached = true};
  const auto count = static_cast<int64_t>(tokens.tokens.size());
  if (count > 0 && std::exchange(attached.again, false)) {
    part.repeated = std::min<int64_t>(attached.received, 1);
  }
  if (tokens.finished.has_value()) {
    Forget(it);
    AcknowledgeEnd(*from->second, tokens);
    return part;
  }
  if (count > part.repeated) attached.breaks = 0;
  attached.received += count - part.repeated;
  attached.owed += count;
  Grant(tokens.id, attached, (credit_ + 1) / 2);
  return part;
}

// The worker keeps what a request ended with until then.
void TokenStreamClient::AcknowledgeEnd(Link& link, const SequenceTokens& tokens) {
  if (reattach_wait_us_ == 0) return;
  link.unsent.detach.push_back({tokens.id, tokens.epoch});
  if (link.requests.empty() || link.unsent.detach.size() >= kEndsMax) MarkReady(link);
}

std::vector<TokenStreamClient::Lost> TokenStreamClient::Ended(TokenStreamId stream, TimeUs now) {
  std::vector<Lost> lost;
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return lost;
  Link& link = *it->second;
  streams_.erase(it);
  ready_.erase(stream);
  answers_due_.Remove(link.endpoint);
  heard_.Broken(link.endpoint);
  link.stream = {};
  if (!link.received) link.breaker.Failed(now);
  link.open_us = link.received ? now : link.breaker.next_us();
  std::vector<DetachTokens> detach = std::move(link.unsent.detach);
  link.unsent = {};
  const bool again = reattach_wait_us_ > 0 && link.received;
  for (const RequestId id : std::vector<RequestId>(link.requests.begin(), link.requests.end())) {
    const auto request = attached_.find(id);
    if (again && AttachAgain(id, request->second)) continue;
    lost.push_back({id, request->second.epoch});
    Forget(request);
  }
  if (link.requests.empty()) return lost;
  link.unsent.detach = std::move(detach);
  waiting_.Set(link.endpoint, link.open_us);
  answers_due_.Set(link.endpoint, now + reattach_wait_us_);
  OpenDue(now);
  return lost;
}

std::vector<TokenStreamClient::Open> TokenStreamClient::TakeOpens() {
  return std::exchange(opens_, {});
}

std::vector<TokenStreamId> TokenStreamClient::TakeReady() {
  std::vector<TokenStreamId> ready(ready_.begin(), ready_.end());
  ready_.clear();
  return ready;
}

bool TokenStreamClient::HasNext(TokenStreamId stream) const {
  const auto it = streams_.find(stream);
  return it != streams_.end() && !it->second->unsent.empty();
}

TokenStreamRequest TokenStreamClient::Next(TokenStreamId stream) {
  TokenStreamRequest next = std::exchange(streams_.at(stream)->unsent, {});
  for (AttachTokens& attach : next.attach) attach.stream = stream;
  return next;
}

absl::Status TokenStreamClient::CheckInvariants() const {
  if (absl::Status status = heard_.CheckInvariants(); !status.ok()) return status;
  size_t requests = 0, waiting = 0;
  for (const auto& [endpoint, link] : links_) {
    requests += link.requests.size();
    const bool open = link.stream != TokenStreamId{};
    const bool waits = waiting_.Of(endpoint) == link.open_us;
    waiting += waits;
    if (!open && answers_due_.Of(endpoint) != kNever) {
      return absl::InternalError(
          absl::StrCat("TokenStreamClient: ", endpoint, " has to answer, but has no stream"));
    }
    if (waits != (!open && !link.requests.empty())) {
      return absl::InternalError(
          absl::StrCat("TokenStreamClient: ", endpoint,
                       waits ? " waits without need" : " lacks a stream but does not wait"));
    }
    for (const RequestId id : link.requests) {
      const auto it = attached_.find(id);
      if (it == attached_.end() || it->second.link != &link) {
        return absl::InternalError(
            absl::StrCat("TokenStreamClient: ", ToString(id), " is not attached"));
      }
    }
  }
  if (requests == attached_.size() && waiting == waiting_.size()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("TokenStreamClient: ", attached_.size(), " attached, ",
                                          requests, " at endpoints; ", waiting_.size(),
                                          " waiting, ", waiting, " known"));
}

}  // namespace skein::scheduler
