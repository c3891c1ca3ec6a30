#include "adapter_source.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#if TENSAFE_S3
#include "fleet/s3_adapters.hpp"
#endif

namespace split {

namespace {

/// Folders below one, which is canonical, or empty: there are none. Without a root: anywhere.
class folders final : public adapter_source {
  public:
    explicit folders(std::optional<std::filesystem::path> root) : root_(std::move(root)) {}

    void check(const std::string& directory) const override { static_cast<void>(folder_of(directory)); }
    tensafe::lora::adapter read(const std::string& directory,
                                const tensafe::keystore::signature_policy* must_be,
                                const std::stop_token& /*stop*/) const override {
        const std::filesystem::path folder = folder_of(directory);
        return must_be == nullptr ? tensafe::io::load_peft(folder)
                                  : tensafe::keystore::load_adapter(folder, *must_be).adapter;
    }

  private:
    std::filesystem::path folder_of(const std::string& directory) const {
        if (!root_) {
            return directory;
        }
        const std::filesystem::path& root = *root_;
        tensafe::require<tensafe::parameter_error>(
            !root.empty(), {"this server was started without --adapter-root: it loads no adapters"});
        std::error_code failure;
        const std::filesystem::path folder = std::filesystem::canonical(root / directory, failure);
        const auto is_below = [&](const std::filesystem::path& path) {
            return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
        };
        // Links are followed before it is compared. Of what is elsewhere nobody learns whether it is there.
        const bool fits = !failure && is_below(folder) && std::filesystem::is_directory(folder, failure);
        const bool none = failure == std::errc::no_such_file_or_directory &&
                          is_below((root / directory).lexically_normal());
        tensafe::require<tensafe::parameter_error>(
            fits, {"directory: got ", tensafe::in_quotes(directory), none ? ", which does not exist" : "",
                   ", expected a folder below the adapter root ", tensafe::in_quotes(root.native())});
        return folder;
    }

    const std::optional<std::filesystem::path> root_;
};

}  // namespace

std::shared_ptr<const adapter_source> any_folder() {
    return std::make_shared<folders>(std::nullopt);
}

std::shared_ptr<const adapter_source> open_adapter_source(const std::string& root) {
    if (root.starts_with("s3://")) {
#if TENSAFE_S3
        return std::make_shared<s3_adapters>(root);
#else
        throw tensafe::unsupported_error(
            "got --adapter-root s3://, expected a build with libcurl 7.88 or later: install it (Debian and "
            "Ubuntu: libcurl4-openssl-dev) and build again");
#endif
    }
    std::error_code ignored;
    tensafe::require<tensafe::parameter_error>(root.empty() || std::filesystem::is_directory(root, ignored),
                                               {"got --adapter-root ", tensafe::in_quotes(root),
                                                ", expected a folder that is there, or s3://BUCKET/PREFIX"});
    return std::make_shared<folders>(root.empty() ? std::filesystem::path()
                                                  : std::filesystem::canonical(root));
}

}  // namespace split
