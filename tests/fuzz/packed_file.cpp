// io/packed_file.hpp: a file of packed words. The first byte says what is mended of the rest, so that not
// every input ends at the checksum: 1 the magic, the key and the number of words, 2 the checksum, 4 and 8
// that other numbers of words are expected.

#include <tensafe/io/packed_file.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

#include "target.hpp"

namespace {

using namespace tensafe;

/// A folder of this process, which goes with it; scripts/fuzz lets TMPDIR point into memory.
class own_folder {
  public:
    own_folder() {
        std::string name = std::filesystem::temp_directory_path() / "tensafe-fuzz-XXXXXX";
        if (::mkdtemp(name.data()) == nullptr) {
            fuzz::broken("a temporary folder can be made", name);
        }
        path_ = name;
    }
    own_folder(const own_folder&) = delete;
    own_folder& operator=(const own_folder&) = delete;
    ~own_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::filesystem::path operator/(const char* name) const { return path_ / name; }

  private:
    std::filesystem::path path_;
};

std::vector<char> contents(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

struct read_words {
    bool is_there = false;
    std::vector<arith::word> words;
};

}  // namespace

TENSAFE_FUZZ_TARGET(packed_file) {
    static const own_folder folder;
    static const io::sha256_digest key = io::sha256::of({});
    if (input.empty()) {
        return;
    }
    const unsigned how = input[0];
    const std::span<const std::byte> rest = std::as_bytes(input.subspan(1));
    std::vector<std::byte> bytes(rest.begin(), rest.end());
    constexpr std::size_t around = 56 + 32;
    std::size_t words = bytes.size() < around ? 0 : (bytes.size() - around) / 8;
    if ((how & 1) != 0 && bytes.size() >= around) {
        const auto head = io::detail::packed_file_head(key, words);
        std::copy(head.begin(), head.end(), bytes.begin());
    }
    if ((how & 2) != 0 && bytes.size() >= around) {
        const std::span<std::byte> all(bytes);
        const auto checksum = io::sha256::of(all.first(all.size() - 32));
        std::copy(checksum.begin(), checksum.end(), bytes.end() - 32);
    }
    words += (how & 4) != 0 ? std::size_t{1} : 0;
    words += (how & 8) != 0 ? std::size_t{1} << 60 : 0;

    const std::filesystem::path path = folder / "packed";
    {
        std::ofstream file(path, std::ios::binary);
        file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        fuzz::holds(file.flush().good(), "the temporary folder has room");
    }
    std::filesystem::permissions(path,
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    const fuzz::memory_limit limit(10 * bytes.size() + 100'000);
    const auto read = fuzz::read_or_refuse([&] {
        read_words result;
        if (auto reader = io::packed_file_reader::open(path, key, words)) {
            result.is_there = true;
            result.words.resize(words);
            // In two parts, of which one may be empty.
            const std::span<arith::word> all(result.words);
            reader->read(all.first(words / 3));
            reader->read(all.subspan(words / 3));
            reader->finish();
        }
        return result;
    });
    if (!read) {
        return;
    }
    fuzz::took();
    fuzz::holds(read->is_there, "a file that was written is there");
    const std::filesystem::path copy = folder / "copy";
    io::packed_file_writer writer(copy, key, words);
    writer.write(read->words);
    writer.finish();
    fuzz::holds(contents(copy) == contents(path), "words that are written again give the same file");
}
