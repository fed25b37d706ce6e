#include "services/http/routes.h"

#include <utility>

#include "services/http/error.h"

namespace skein::services::http {
namespace {

template <typename Methods>
std::string AllowOf(const Methods& methods) {
  std::string allow;
  for (const auto& [method, fn] : methods) {
    allow += method + ", ";
    if (method == "GET") allow += "HEAD, ";
  }
  return allow + "OPTIONS";
}

// "GET", "GET or POST".
template <typename Methods>
std::string OneOf(const Methods& methods) {
  std::string text;
  for (const auto& [method, fn] : methods) text += (text.empty() ? "" : " or ") + method;
  return text;
}

// Whether something, without a slash unless `after` is empty, stands between the two.
bool Matches(std::string_view path, std::string_view before, std::string_view after) {
  if (path.size() <= before.size() + after.size()) return false;
  if (!path.starts_with(before) || !path.ends_with(after)) return false;
  path.remove_prefix(before.size());
  path.remove_suffix(after.size());
  return after.empty() || path.find('/') == std::string_view::npos;
}

}  // namespace

void Routes::Add(std::string method, std::string path, RequestFn fn) {
  const size_t star = path.find('*');
  Methods& methods = star == std::string::npos
                         ? exact_[path]
                         : wild_[{path.substr(0, star), path.substr(star + 1)}];
  methods[std::move(method)] = std::move(fn);
}

void Routes::AddPage(std::string path, PageFn page) {
  Add("GET", std::move(path), [page = std::move(page)](Request request, auto responder) {
    responder->Send(page(request));
  });
}

std::vector<std::pair<std::string, std::string>> Routes::All() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [path, methods] : exact_) {
    for (const auto& [method, fn] : methods) all.emplace_back(method, path);
  }
  for (const auto& [around, methods] : wild_) {
    for (const auto& [method, fn] : methods) {
      all.emplace_back(method, around.first + "*" + around.second);
    }
  }
  return all;
}

Routes::Found Routes::Find(const std::string& path) const {
  if (auto it = exact_.find(path); it != exact_.end()) return {it->first, &it->second};
  Found best;
  std::pair<size_t, size_t> best_sizes;
  for (const auto& [around, methods] : wild_) {
    const auto& [before, after] = around;
    const std::pair<size_t, size_t> sizes = {before.size(), after.size()};
    if (sizes < best_sizes || !Matches(path, before, after)) continue;
    best_sizes = sizes;
    best = {before + "*" + after, &methods};
  }
  return best;
}

std::string Routes::Allow(const std::string& path) const {
  const Found found = Find(path);
  return found.methods == nullptr ? std::string() : AllowOf(*found.methods);
}

std::string Routes::PatternOf(const std::string& path) const { return Find(path).pattern; }

void Routes::Serve(Request request, std::shared_ptr<Responder> responder) const {
  const Methods* methods = Find(request.path).methods;
  if (methods == nullptr) {
    responder->Send(ErrorResponse(404,
                                  "Unknown request URL: " + request.method.substr(0, 32) + " " +
                                      request.path.substr(0, 256) +
                                      ". Please check the URL for typos.",
                                  {}, "unknown_url"));
    return;
  }
  auto it = methods->find(request.method);
  if (it == methods->end() && request.method == "HEAD") it = methods->find("GET");
  if (it != methods->end()) return it->second(std::move(request), std::move(responder));
  Response response;
  if (request.method == "OPTIONS") {
    response.status = 204;
    response.content_type.clear();
  } else {
    response = ErrorResponse(405,
                             "Method " + request.method.substr(0, 32) +
                                 " is not allowed here; use " + OneOf(*methods) + ".",
                             {}, "method_not_allowed");
  }
  response.headers.push_back({"Allow", AllowOf(*methods)});
  responder->Send(std::move(response));
}

}  // namespace skein::services::http
