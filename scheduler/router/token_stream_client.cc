#include "scheduler/router/token_stream_client.h"

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {

void TokenStreamClient::Attach(RequestId id, Epoch epoch, const Source& source,
                               std::string traceparent, bool paused, TimeUs now) {
  if (const auto it = attached_.find(id); it != attached_.end()) Detach(id, it->second.epoch);
  Link& link = LinkTo(source.endpoint, now);
  link.requests.insert(id);
  attached_[id] = {.epoch = epoch,
                   .link = &link,
                   .place = source.place,
                   .owed = paused ? credit_ : 0,
                   .paused = paused};
  heard_.Attach(source.place, source.endpoint);
  link.unsent.attach.push_back(
      {id, epoch, paused ? 0 : credit_, std::move(traceparent), source.ahead});
  if (link.stream != TokenStreamId{}) return MarkReady(link);
  waiting_.Set(source.endpoint, link.open_us);
  OpenDue(now);
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

void TokenStreamClient::Tick(TimeUs now) {
  heard_.Tick(now);
  OpenDue(now);
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
  return std::min(waiting_.Next(), heard_.NextDeadline());
}

void TokenStreamClient::MarkReady(const Link& link) {
  if (link.stream != TokenStreamId{}) ready_.insert(link.stream);
}

void TokenStreamClient::Detach(RequestId id, Epoch epoch) {
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
  link.unsent.credit.push_back({id, attached.epoch, std::exchange(attached.owed, 0)});
  MarkReady(link);
}

void TokenStreamClient::Received(TokenStreamId stream, TimeUs now) {
  const auto from = streams_.find(stream);
  if (from == streams_.end()) return;
  from->second->received = true;
  heard_.Received(from->second->endpoint, now);
}

bool TokenStreamClient::Receive(TokenStreamId stream, const SequenceTokens& tokens) {
  const auto from = streams_.find(stream);
  if (from == streams_.end()) return false;
  const auto it = attached_.find(tokens.id);
  if (it == attached_.end()) return false;
  const bool stale = it->second.epoch != tokens.epoch;
  if (stale && !SKEIN_PLANT(token_epoch_ignored)) return false;
  if (it->second.link != from->second) return false;
  if (tokens.finished.has_value()) {
    Forget(it);
    return true;
  }
  it->second.owed += static_cast<int64_t>(tokens.tokens.size());
  Grant(tokens.id, it->second, (credit_ + 1) / 2);
  return true;
}

std::vector<TokenStreamClient::Lost> TokenStreamClient::Ended(TokenStreamId stream, TimeUs now) {
  std::vector<Lost> lost;
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return lost;
  Link& link = *it->second;
  streams_.erase(it);
  ready_.erase(stream);
  heard_.Broken(link.endpoint);
  for (const RequestId id : link.requests) {
    const auto request = attached_.find(id);
    heard_.Detach(request->second.place);
    lost.push_back({id, request->second.epoch});
    attached_.erase(request);
  }
  link.requests.clear();
  link.unsent = {};
  link.stream = {};
  if (link.received) link.backoff.Succeeded();
  link.open_us = link.received ? now : now + link.backoff.Failed();
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
  return std::exchange(streams_.at(stream)->unsent, {});
}

absl::Status TokenStreamClient::CheckInvariants() const {
  if (absl::Status status = heard_.CheckInvariants(); !status.ok()) return status;
  size_t requests = 0, waiting = 0;
  for (const auto& [endpoint, link] : links_) {
    requests += link.requests.size();
    const bool open = link.stream != TokenStreamId{};
    const bool waits = waiting_.Of(endpoint) == link.open_us;
    waiting += waits;
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
