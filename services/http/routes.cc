#include "services/http/routes.h"

#include <utility>

#include "services/http/error.h"

namespace skein::services::http {
namespace {

template <typename Methods>
std::string Allow(const Methods& methods) {
  std::string allow;
  for (const auto& [method, fn] : methods) {
    allow += method + ", ";
    if (method == "GET") allow += "HEAD, ";
  }
  return allow + "OPTIONS";
}

}  // namespace

void Routes::Add(std::string method, std::string path, RequestFn fn) {
  if (!path.empty() && path.back() == '*') {
    path.pop_back();
    prefix_[path][std::move(method)] = std::move(fn);
  } else {
    exact_[path][std::move(method)] = std::move(fn);
  }
}

void Routes::AddPage(std::string path, PageFn page) {
  Add("GET", std::move(path), [page = std::move(page)](Request request, auto responder) {
    responder->Send(page(request));
  });
}

const Routes::Methods* Routes::Find(const std::string& path) const {
  if (auto it = exact_.find(path); it != exact_.end()) return &it->second;
  const Methods* best = nullptr;
  for (const auto& [prefix, methods] : prefix_) {  // ordered: the longest match comes last
    if (path.size() > prefix.size() && path.compare(0, prefix.size(), prefix) == 0) best = &methods;
  }
  return best;
}

void Routes::Serve(Request request, std::shared_ptr<Responder> responder) const {
  const Methods* methods = Find(request.path);
  if (methods == nullptr) {
    responder->Send(ErrorResponse(404,
                                  "Unknown request URL: " + request.method + " " +
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
                             "Not allowed to " + request.method.substr(0, 32) + " on " +
                                 request.path.substr(0, 256) + ".",
                             {}, "method_not_allowed");
  }
  response.headers.push_back({"Allow", Allow(*methods)});
  responder->Send(std::move(response));
}

}  // namespace skein::services::http
