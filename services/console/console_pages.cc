#include "services/console/console_pages.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/console/console_access.h"
#include "services/console/merge_patch.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;

// One server-sent event; the JSON has no line end.
std::string EventOf(const char* name, const char* member, const Json& value, int64_t now_ms) {
  return absl::StrCat("event: ", name, "\ndata: {\"now_ms\":", now_ms, ",\"", member,
                      "\":", value.dump(-1, ' ', false, Json::error_handler_t::replace), "}\n\n");
}

}  // namespace

bool ConsolePages::Open(const std::shared_ptr<http::Responder>& responder) {
  auto page = std::make_shared<Page>();
  page->responder = responder;
  http::Response head;
  head.content_type = "text/event-stream; charset=utf-8";
  AddConsoleHeaders(&head);
  {
    std::lock_guard lock(mutex_);
    if (closed_ || pages_.size() >= kPagesMax) return false;
    pages_.push_back(page);
    // Within the lock, so that nothing is written before it.
    responder->StartStream(std::move(head));
  }
  std::weak_ptr<Page> weak = page;
  responder->Watch(
      [weak](http::Gone) {
        if (const auto alive = weak.lock()) alive->gone.store(true);
      },
      [weak] {
        if (const auto alive = weak.lock()) alive->full.store(false);
      });
  return true;
}

size_t ConsolePages::Count() {
  std::lock_guard lock(mutex_);
  pages_.remove_if([](const auto& page) { return page->gone.load(); });
  return pages_.size();
}

void ConsolePages::Publish(Json state, int64_t now_ms) {
  KeepMoments(state_, &state);
  const std::string patch = EventOf("patch", "patch", MergePatchOf(state_, state), now_ms);
  state_ = std::move(state);
  std::string snapshot;  // made when the first page needs it
  std::lock_guard lock(mutex_);
  for (const auto& page : pages_) {
    if (page->gone.load()) continue;
    if (page->full.load()) {
      page->behind = true;
      continue;
    }
    if (page->behind && snapshot.empty()) snapshot = EventOf("state", "state", state_, now_ms);
    // Before the call, because the page may have read all of it when Write returns.
    page->full.store(true);
    if (page->responder->Write(page->behind ? snapshot : patch)) page->full.store(false);
    page->behind = false;
  }
}

void ConsolePages::Close() {
  std::list<std::shared_ptr<Page>> pages;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    pages.swap(pages_);
  }
  for (const auto& page : pages) page->responder->Finish();
}

}  // namespace skein::services
