// Maps methods and paths to functions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/http/message.h"
#include "services/http/responder.h"

namespace skein::services::http {

// Runs on a server thread; must not block. Answers through the responder, now or later.
using RequestFn = std::function<void(Request, std::shared_ptr<Responder>)>;
// The same for answers that are available at once.
using PageFn = std::function<Response(const Request&)>;

// A table of routes. Add all routes before serving; then Serve may run in any number of threads. No
// route for the path: 404. No route for the method: 405 with Allow. GET routes also serve HEAD.
// OPTIONS answers 204 with Allow.
class Routes {
 public:
  // `path` must match completely. A '*' at its end matches any rest, one elsewhere matches one
  // segment of the path; neither matches nothing. At most one '*'. A request goes to the path with
  // the longest text before the '*' that matches, and of those to the one with the longest after.
  void Add(std::string method, std::string path, RequestFn fn);
  void AddPage(std::string path, PageFn page);  // GET

  // Method and path of every route; a path as it was added.
  std::vector<std::pair<std::string, std::string>> All() const;

  void Serve(Request request, std::shared_ptr<Responder> responder) const;

  // The Allow header for `path`, "GET, HEAD, OPTIONS"; "": no such route.
  std::string Allow(const std::string& path) const;
  // The matching route's `path` as it was added, "/v1/models/*"; "": no such route.
  std::string PatternOf(const std::string& path) const;

 private:
  using Methods = std::map<std::string, RequestFn>;

  struct Found {
    std::string pattern;
    const Methods* methods = nullptr;
  };
  Found Find(const std::string& path) const;

  std::map<std::string, Methods> exact_;
  std::map<std::pair<std::string, std::string>, Methods> wild_;  // by what is before and after '*'
};

}  // namespace skein::services::http
